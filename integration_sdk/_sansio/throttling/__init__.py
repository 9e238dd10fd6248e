"""When may a call leave, and may it be sent again? Gate, window, lanes, pace and retries."""
