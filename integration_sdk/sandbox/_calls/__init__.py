"""The calls that the service answers: their routes, handlers, pages, filters and replays."""
