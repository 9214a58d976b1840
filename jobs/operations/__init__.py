"""What runs by itself: schedules, the sensors that notice changes, who hears of failures, and what is thrown away of the history."""
