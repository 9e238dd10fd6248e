"""Which pages to fetch, in which order to hand them out, and what they hold.

``walk`` is what all walks along a list share: ``page_walk`` follows the links, ``repair`` reads
a list that changes. ``line`` holds the pages to come, ``links`` judges a next link,
``page_size`` chooses sizes. ``items`` decodes a page, ``item_models`` compiles the user's
classes for that. ``cursor`` names a place, ``drift`` and ``report`` say what was noticed.
"""
