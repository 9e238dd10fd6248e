"""The push protocol: intents, evidence, and what an answer proves."""
