"""When may a call leave, and may it be sent again? Gate, window, turns, pace and retries."""
