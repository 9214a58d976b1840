"""The needs of builds and trainings: terms, what they add up to, and the sizes that they follow from."""
