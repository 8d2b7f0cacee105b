"""DURING: the days that a range's name stands for, seen from a given day."""

from datetime import date, timedelta


def days_during(name: str, today: date) -> tuple[date, date]:
    """The first and the last day. Ranges of the past end before today, those of the present with it."""

    def ago(days: int, *, since: date = today) -> date:
        return since - timedelta(days=days)

    monday, sunday = ago(today.weekday()), ago(today.isoweekday() % 7)
    first_of_month = today.replace(day=1)
    end_of_last_month = ago(1, since=first_of_month)
    return {
        "TODAY": (today, today),
        "YESTERDAY": (ago(1), ago(1)),
        "LAST_7_DAYS": (ago(7), ago(1)),
        "LAST_14_DAYS": (ago(14), ago(1)),
        "LAST_30_DAYS": (ago(30), ago(1)),
        "LAST_BUSINESS_WEEK": (ago(7, since=monday), ago(3, since=monday)),
        "LAST_WEEK_MON_SUN": (ago(7, since=monday), ago(1, since=monday)),
        "LAST_WEEK_SUN_SAT": (ago(7, since=sunday), ago(1, since=sunday)),
        "THIS_WEEK_MON_TODAY": (monday, today),
        "THIS_WEEK_SUN_TODAY": (sunday, today),
        "LAST_MONTH": (end_of_last_month.replace(day=1), end_of_last_month),
        "THIS_MONTH": (first_of_month, today),
    }[name]
