"""Operations that run by themselves: schedules, sensors of changes and of failures, and removal of old history."""
