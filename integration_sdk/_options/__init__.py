"""Push options: ``description`` says what a platform takes, ``check`` finds problems in a record,
and ``render`` makes a JSON Schema or a form of it.
"""
