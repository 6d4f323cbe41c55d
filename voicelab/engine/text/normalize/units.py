"""The names of units and currencies: data for `quantities`."""

from __future__ import annotations

from typing import Final

__all__ = ["CURRENCIES", "CURRENCY_CODES", "PER", "UNITS"]


def _with_prefixes() -> dict[str, tuple[str, str]]:
    prefixes = {
        "k": "kilo",
        "M": "mega",
        "G": "giga",
        "T": "tera",
        "m": "milli",
        "µ": "micro",
        "n": "nano",
        "c": "centi",
    }
    scaled = {
        "m": ("meter", "kmµnc"),
        "g": ("gram", "kmµn"),
        "s": ("second", "mµn"),
        "l": ("liter", "mµc"),
        "L": ("liter", "mµc"),
        "W": ("watt", "kMGTm"),
        "V": ("volt", "kMmµ"),
        "A": ("amp", "kmµn"),
        "J": ("joule", "kMGm"),
        "N": ("newton", "kM"),
        "Pa": ("pascal", "kMG"),
        "F": ("farad", "mµn"),
        "Ω": (" ohm", "kMm"),
        "B": ("byte", "kMGT"),
        "eV": (" electron volt", "kMGT"),
        "mol": ("mole", "mµn"),
        "Wh": ("watt hour", "kMGTm"),
    }
    return {
        prefix + symbol: (prefixes[prefix] + name, f"{prefixes[prefix]}{name}s")
        for symbol, (name, allowed) in scaled.items()
        for prefix in allowed
    }


UNITS: Final[dict[str, tuple[str, str]]] = {
    **_with_prefixes(),
    "KB": ("kilobyte", "kilobytes"),
    "m": ("meter", "meters"),
    "g": ("gram", "grams"),
    "s": ("second", "seconds"),
    "l": ("liter", "liters"),
    "L": ("liter", "liters"),
    "h": ("hour", "hours"),
    "V": ("volt", "volts"),
    "W": ("watt", "watts"),
    "Ω": ("ohm", "ohms"),
    "eV": ("electron volt", "electron volts"),
    "mol": ("mole", "moles"),
    "Hz": ("hertz", "hertz"),
    "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"),
    "GHz": ("gigahertz", "gigahertz"),
    "THz": ("terahertz", "terahertz"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "min": ("minute", "minutes"),
    "mins": ("minute", "minutes"),
    "sec": ("second", "seconds"),
    "secs": ("second", "seconds"),
    "in.": ("inch", "inches"),
    "ft": ("foot", "feet"),
    "yd": ("yard", "yards"),
    "mi": ("mile", "miles"),
    "mph": ("mile per hour", "miles per hour"),
    "kph": ("kilometer per hour", "kilometers per hour"),
    "kmh": ("kilometer per hour", "kilometers per hour"),
    "rpm": ("revolution per minute", "revolutions per minute"),
    "bpm": ("beat per minute", "beats per minute"),
    "fps": ("frame per second", "frames per second"),
    "bps": ("bit per second", "bits per second"),
    "kbps": ("kilobit per second", "kilobits per second"),
    "Mbps": ("megabit per second", "megabits per second"),
    "Gbps": ("gigabit per second", "gigabits per second"),
    "kbit": ("kilobit", "kilobits"),
    "Mbit": ("megabit", "megabits"),
    "Gbit": ("gigabit", "gigabits"),
    "Mb": ("megabit", "megabits"),
    "Gb": ("gigabit", "gigabits"),
    "dL": ("deciliter", "deciliters"),
    "mAh": ("milliamp hour", "milliamp hours"),
    "mmHg": ("millimeter of mercury", "millimeters of mercury"),
    "dB": ("decibel", "decibels"),
    "psi": ("pound per square inch", "pounds per square inch"),
    "hp": ("horsepower", "horsepower"),
    "kcal": ("kilocalorie", "kilocalories"),
    "cal": ("calorie", "calories"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "fl oz": ("fluid ounce", "fluid ounces"),
    "tsp": ("teaspoon", "teaspoons"),
    "tbsp": ("tablespoon", "tablespoons"),
    "gal": ("gallon", "gallons"),
    "qt": ("quart", "quarts"),
    "pt": ("point", "points"),
    "px": ("pixel", "pixels"),
    "ha": ("hectare", "hectares"),
    "sq ft": ("square foot", "square feet"),
    "sq in": ("square inch", "square inches"),
    "sq yd": ("square yard", "square yards"),
    "cu ft": ("cubic foot", "cubic feet"),
    "cu in": ("cubic inch", "cubic inches"),
    "sq m": ("square meter", "square meters"),
    "sq km": ("square kilometer", "square kilometers"),
    "sq mi": ("square mile", "square miles"),
    "MP": ("megapixel", "megapixels"),
    "MB/s": ("megabyte per second", "megabytes per second"),
    "GB/s": ("gigabyte per second", "gigabytes per second"),
    "dpi": ("dot per inch", "dots per inch"),
    "ppm": ("part per million", "parts per million"),
    "ppb": ("part per billion", "parts per billion"),
    "yr": ("year", "years"),
    "yrs": ("year", "years"),
    "wk": ("week", "weeks"),
    "wks": ("week", "weeks"),
    "mo": ("month", "months"),
    "mos": ("month", "months"),
}
"""Symbol → (one, many). Case matters: m is meters, M no unit; single letters that are more often a label than a
unit after a number (A, B, C, F, J, K, N) are left out."""

PER: Final[dict[str, str]] = {
    **{symbol: one for symbol, (one, _) in UNITS.items() if " per " not in one},
    "H": "hour",
    "day": "day",
    "d": "day",
    "week": "week",
    "month": "month",
    "year": "year",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "person": "person",
    "night": "night",
    "gallon": "gallon",
    "mile": "mile",
    "pound": "pound",
    "K": "kelvin",
}
"""What may follow a slash: km/h, $20/hour, 3 kg/m^3."""

CURRENCIES: Final[dict[str, tuple[str, str, str, str]]] = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
    "¥": ("yen", "yen", "", ""),
    "₹": ("rupee", "rupees", "paisa", "paise"),
}
"""Sign → (one, many, small coin, small coins)."""

CURRENCY_CODES: Final[dict[str, tuple[str, str, str, str]]] = {
    "USD": ("U S dollar", "U S dollars", "cent", "cents"),
    "EUR": CURRENCIES["€"],
    "GBP": ("British pound", "British pounds", "penny", "pence"),
    "JPY": CURRENCIES["¥"],
    "CNY": ("yuan", "yuan", "", ""),
    "INR": CURRENCIES["₹"],
    "CHF": ("Swiss franc", "Swiss francs", "", ""),
    "CAD": ("Canadian dollar", "Canadian dollars", "cent", "cents"),
    "AUD": ("Australian dollar", "Australian dollars", "cent", "cents"),
}
