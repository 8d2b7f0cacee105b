"""How long Google answers each version of its API."""

from datetime import date, timedelta

# Google names the month; the first day counts, as no later one is certain. As announced on September 4, 2025:
# https://developers.google.com/ads/blog/posts/2025/09/more-frequent-releases-coming-for
# What changed since is on https://developers.google.com/google-ads/api/docs/sunset-dates
SUNSETS = {
    "v23": date(2027, 2, 1),
    "v24": date(2027, 5, 1),
    "v25": date(2027, 8, 1),
    "v26": date(2027, 11, 1),
}
_NEAR = timedelta(days=60)


def sunset_passed(api_version: str, today: date) -> bool:
    return api_version in SUNSETS and SUNSETS[api_version] <= today


def is_near_sunset(api_version: str, today: date) -> bool:
    """From 60 days before its end on."""
    return api_version in SUNSETS and SUNSETS[api_version] - today <= _NEAR


def describe_sunset(api_version: str, today: date) -> str:
    """Says what to do as soon as there is something to do; of a version that is not in the table, that it is not."""
    sunset = SUNSETS.get(api_version)
    if sunset is None:
        return f"{api_version}, whose end is not known here"
    mend = "raise api_version in the catalog"
    if sunset <= today:
        return f"{api_version} was to end in {sunset:%B %Y}; {mend}"
    if is_near_sunset(api_version, today):
        return f"{api_version} ends in {sunset:%B %Y}, in {(sunset - today).days} days or a little later; {mend} soon"
    return f"{api_version}, until {sunset:%B %Y}"
