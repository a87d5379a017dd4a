"""What a campaign came to: a table by kind of fault, and whether it failed."""
import collections
import statistics


def seconds(values):
    values = [value for value in values if value is not None]
    return f"{statistics.median(values):.1f} / {max(values):.1f}" if values else "-"


def row(*cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def table(outcomes):
    """`outcomes`: as records. Of trials with several faults, failures and bits count for each of them."""
    by_kind = collections.defaultdict(list)
    for outcome in outcomes:
        for strike in outcome["strikes"]:
            by_kind[strike["kind"]].append((strike, outcome))
    lines = [row("fault", "times", "named after, s", "ended after, s", "named right", "exit codes", "same bits", "failed"), row(*["---"] * 8)]
    for kind, all_of in sorted(by_kind.items()):
        struck = [(strike, outcome) for strike, outcome in all_of if strike["happened"]]
        named = [strike["named"] for strike, _ in struck if strike["named"] is not None]
        codes = collections.Counter(strike["code"] for strike, _ in struck if strike["code"] is not None)
        lines.append(row(kind, len(struck), seconds(strike["verdict_s"] for strike, _ in struck), seconds(strike["end_s"] for strike, _ in struck),
                         f"{sum(named)} of {len(named)}" if named else "-", ", ".join(f"{code}: {times}" for code, times in sorted(codes.items())) or "-",
                         f"{sum(outcome['same_bits'] for _, outcome in struck)} of {len(struck)}", sum(bool(outcome["failures"]) for _, outcome in struck)))
    return "\n".join(lines)


def strikes_of(outcomes):
    return [strike for outcome in outcomes for strike in outcome["strikes"]]


def came_in_time(outcomes):
    return statistics.mean(strike["happened"] for strike in strikes_of(outcomes))


def summary(outcomes):
    strikes = strikes_of(outcomes)
    named = [strike["named"] for strike in strikes if strike["named"] is not None]
    return (f"{len(outcomes)} trials, {sum(strike['happened'] for strike in strikes)} of {len(strikes)} faults came in time; "
            f"{sum(outcome['same_bits'] for outcome in outcomes)} trials came to the undisturbed run's bits; "
            f"{sum(named)} of {len(named)} culprits named right; {sum(bool(outcome['failures']) for outcome in outcomes)} trials failed")


def failed(outcomes):
    """A line for each thing that was wrong."""
    return "\n".join(f"seed {outcome['plan']['seed']}, trial {outcome['plan']['trial']}: {text}" for outcome in outcomes for text in outcome["failures"])
