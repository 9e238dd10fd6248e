"""Invented names, so that generated records look real."""

COMPANIES = (
    "Amber Kiln Pottery",
    "Bramble & Finch Catering",
    "Copperfield Cycles",
    "Dunmore Timber Frames",
    "Eastgate Dental Care",
    "Fernhill Garden Centre",
    "Granite Peak Climbing",
    "Harbour Light Bookshop",
    "Inkwell Print Works",
    "Juniper Road Bakery",
)
FIRST = (
    "Alder",
    "Beacon",
    "Cinder",
    "Dovetail",
    "Elm Street",
    "Foxglove",
    "Greystone",
    "Hollow Oak",
    "Ironbridge",
    "Jackdaw",
    "Kestrel",
    "Lantern",
    "Millrace",
    "Northwind",
    "Osprey",
    "Pinecrest",
    "Quayside",
    "Rookery",
    "Saltmarsh",
    "Thistledown",
)
SECOND = (
    "Analytics",
    "Builders",
    "Coffee Roasters",
    "Design Studio",
    "Electrical",
    "Freight",
    "Glazing",
    "Hospitality",
    "Interiors",
    "Joinery",
)
LEGAL = ("Ltd", "LLP", "Inc", "GmbH", "& Sons")
THINGS = (
    "Consulting, senior engineer, day rate",
    "Site survey and written report",
    "Ash worktop, oiled, 3.2 m",
    "Replacement drive belt, heavy duty",
    "Monthly support retainer",
    "Delivery and installation",
    "Espresso blend, 12 x 1 kg",
    "Brochure print run, 2,000 copies",
    "Boiler inspection and certificate",
    "Fleet tyre change, per vehicle",
    "Workshop hire, half day",
    "Photography, product range",
)
CITIES = ("Bristol", "Leeds", "Cork", "Utrecht", "Graz", "Porto", "Malmo", "Ghent")
STREETS = ("Mill Lane", "Station Road", "Harbour Street", "Orchard Way", "Castle Hill")
ACCOUNTS = (
    ("4000", "Sales of goods", "Income", "Income.Operating"),
    ("4010", "Sales of services", "Income", "Income.Operating"),
    ("5000", "Cost of goods sold", "Expense", "Expense.CostOfSales"),
    ("6100", "Rent and rates", "Expense", "Expense.Overheads"),
    ("6200", "Wages", "Expense", "Expense.Payroll"),
    ("6300", "Travel", "Expense", "Expense.Overheads"),
    ("1200", "Current account", "Asset", "Asset.Current.Bank"),
    ("1100", "Trade debtors", "Asset", "Asset.Current.Receivable"),
    ("2100", "Trade creditors", "Liability", "Liability.Current.Payable"),
    ("3000", "Retained earnings", "Equity", "Equity.RetainedEarnings"),
)


def business(n: int) -> str:
    """Return the name of the *n*-th invented business; 1,000 of them differ."""
    first = FIRST[n % len(FIRST)]
    second = SECOND[n // len(FIRST) % len(SECOND)]
    return f"{first} {second} {LEGAL[n // (len(FIRST) * len(SECOND)) % len(LEGAL)]}"
