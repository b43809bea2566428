"""A rule on multi-machine jobs limited by the network between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.ranks.team import Team, teams
from gputop.diagnose.view import View
from gputop.model import Missing, Network

_HIDDEN = "the number of ranks is in the job's environment"
_LESS = (
    Step(text="Communicate less often: gradient accumulation, with no_sync() except in the last micro-batch",
         command="with model.no_sync(): loss.backward()"),
    Step(text="Halve the traffic: bf16 gradient compression",
         command="model.register_comm_hook(None, torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
                 ".bf16_compress_hook)"),
    Step(text="Sweep bucket_cap_mb (default 25): smaller buckets overlap more with backward, larger ones fill the link",
         command="DistributedDataParallel(..., bucket_cap_mb=25, gradient_as_bucket_view=True)"),
    Step(text="With FSDP, prefetch the weights of the next layers",
         command="FullyShardedDataParallel(..., forward_prefetch=True, limit_all_gathers=True)"),
)  # fmt: skip

_EFA = ("rdmap", "efa_")  # names of AWS adapters by udev, and before it by the kernel
_PLUGIN = Step(
    text="Put the plugin aws-ofi-nccl in LD_LIBRARY_PATH: NCCL needs it for EFA",
    command="export FI_PROVIDER=efa",
)
_DEVICES = Step(
    text="In a container, pass the InfiniBand devices",
    command="docker run --device=/dev/infiniband --ulimit memlock=-1",
)


@rule(
    "network-bound",
    "Does a multi-node job wait for the network?",
    level=Level.RANKS,
    state="network",
    short="NET",
    confirmed_by=("exposed-communication",),
    needs=("world_size", "speed_bytes_per_s"),
    partly=("send_bytes_per_s", "receive_bytes_per_s"),
    of_host=True,
)
def network_bound(view: View) -> Iterator[Finding]:
    """A link saturated in both directions, as in a gradient exchange; or TCP traffic while InfiniBand is idle."""
    for team in teams(view):
        if team.world is not None and not team.elsewhere:
            continue
        links = _links(view)
        idle, carrier = _idle_ports(view, links), _carrier(view, links)
        full = _saturated_link(view, links)
        if team.world is None:
            if full is not None or (idle and carrier is not None):
                view.abstain(team.job, Missing(metric="world_size", reason="denied", unlock=view.unlock(_HIDDEN)))
        elif idle and carrier is not None:
            yield _tcp_finding(view, team, carrier, idle)
        elif full is not None:
            yield _saturated_finding(view, team, full)
        elif not any(link.speed_bytes_per_s for link in links):
            view.abstain(team.job, Missing(metric="speed_bytes_per_s", reason="absent"))
        elif not all(_is_counted(link) for link in links if link.kind == "infiniband"):
            unreported = (
                Missing(metric="send_bytes_per_s", reason="absent"),
                Missing(metric="receive_bytes_per_s", reason="absent"),
            )
            view.abstain(team.job, *unreported)


def _links(view: View) -> list[Network]:
    """Links that may lead to another machine."""
    return [link for link in view.frame.host.networks if link.up is not False and link.name != "lo"]


def _rates(view: View, link: Network) -> tuple[float, float]:
    """Bytes/s sent and received."""
    key = f"net {link.name}"
    return view.mean(key, "send_bytes_per_s") or 0.0, view.mean(key, "receive_bytes_per_s") or 0.0


def _is_counted(link: Network) -> bool:
    """Whether its traffic is counted: otherwise it only appears idle."""
    return link.send_bytes_per_s is not None and link.receive_bytes_per_s is not None


def _both_ways(view: View, link: Network) -> bool:
    """A gradient exchange uses both directions; a data set only arrives, a checkpoint only leaves."""
    sent, received = _rates(view, link)
    return min(sent, received) >= view.limit("both_ways") * max(sent, received) > 0


def _saturated_link(view: View, links: Sequence[Network]) -> Network | None:
    """The fullest of the links that are saturated most of the time in both directions."""
    full = [
        link for link in links if view.above(_share(view, link), "samples") and link.speed_bytes_per_s
        and _both_ways(view, link)
    ]  # fmt: skip
    return max(full, key=lambda link: max(_rates(view, link)) / (link.speed_bytes_per_s or 1.0), default=None)


def _share(view: View, link: Network) -> float | None:
    """Share of samples in which a link is nearly saturated in either direction."""
    if not link.speed_bytes_per_s or max(_rates(view, link)) < 0.5 * view.limit("full") * link.speed_bytes_per_s:
        return None
    bound, key = view.limit("full") * link.speed_bytes_per_s, f"net {link.name}"
    shares = (view.window(key, name).share_above(bound) for name in ("send_bytes_per_s", "receive_bytes_per_s"))
    return max((share for share in shares if share is not None), default=None)


def _idle_ports(view: View, links: Sequence[Network]) -> list[Network]:
    """The InfiniBand ports, if none of them is used."""
    ports = [link for link in links if link.kind == "infiniband" and link.speed_bytes_per_s]
    if not all(map(_is_counted, ports)):
        return []
    used = [max(_rates(view, port)) / (port.speed_bytes_per_s or 1.0) for port in ports]
    return ports if ports and view.below(max(used), "idle") else []


def _carrier(view: View, links: Sequence[Network]) -> Network | None:
    """The Ethernet link that carries the exchange instead."""
    busy = [
        link
        for link in links
        if link.kind != "infiniband"
        and view.above(min(_rates(view, link)), "tcp_bytes_per_s")
        and _both_ways(view, link)
    ]
    return max(busy, key=lambda link: max(_rates(view, link)), default=None)


def _severity(view: View, team: Team) -> Severity:
    """By GPU load: if every GPU works hard, communication is hidden behind computation."""
    shares = [one.power_share for one in team.ranks]
    works = all(share is not None and share >= view.limit("gpu-bound-healthy.power_share") for share in shares)
    return "info" if works else "warn"


def _gbits(rate: float | None) -> str:
    return f"{_in_gbits(rate or 0.0):.3g}"


def _in_gbits(rate: float) -> float:
    """Gbit/s, the unit in which links are sold."""
    return 8 * rate / 1e9


def _rate_evidence(view: View, link: Network, decided: float, limit: float) -> Evidence:
    """`decided`: the rate compared with `limit`, both in bytes/s."""
    sent, received = _rates(view, link)
    top = f" of {_gbits(link.speed_bytes_per_s)}" if link.speed_bytes_per_s else ""
    share = _share(view, link)
    often = f", nearly saturated {100 * share:.0f} % of the time" if share else ""
    return Evidence(
        text=f"{link.name} sends {_gbits(sent)} and receives {_gbits(received)}{top} Gb/s{often}",
        value=_in_gbits(decided),
        unit="Gb/s",
        limit=_in_gbits(limit),
        sense="flagged_from",
    )


def _overload_evidence(view: View, link: Network) -> Iterator[Evidence]:
    """Signs of more traffic than the link could carry."""
    waited = link.send_wait_percent
    if waited is not None and waited >= view.limit("send_wait_percent"):
        text, limit = f"{link.name} send stalled {waited:.0f} % of the time", view.limit("send_wait_percent")
        yield Evidence(text=text, value=waited, unit="%", limit=limit, sense="healthy_to")
    again = view.mean("host", "tcp_retransmits_per_s")
    if link.kind != "infiniband" and again is not None and again >= view.limit("retransmits_per_s"):
        text, limit = f"TCP retransmits {again:.0f} segments/s", view.limit("retransmits_per_s")
        yield Evidence(text=text, value=again, unit="1/s", limit=limit, sense="healthy_to")


def _team_evidence(team: Team) -> Evidence:
    count, world = len(team.job.ranks), team.world or 0
    text = f"{count} of {world} ranks on this machine"
    return Evidence(text=text, value=float(count), limit=float(world), sense="flagged_below")


def _saturated_finding(view: View, team: Team, link: Network) -> Finding:
    strain, most = tuple(_overload_evidence(view, link)), view.limit("full") * (link.speed_bytes_per_s or 0.0)
    return view.found(
        team.job,
        _severity(view, team),
        f"network-bound, {link.name} saturated",
        evidence=(_rate_evidence(view, link, max(_rates(view, link)), most), *strain, _team_evidence(team)),
        steps=(*_LESS, Step(text="Or use a faster link between the machines")),
        confidence=0.8 if strain else 0.7,
        gpus=[uuid for one in team.ranks for uuid in one.uuids],
    )


def _tcp_finding(view: View, team: Team, carrier: Network, idle: Sequence[Network]) -> Finding:
    adapters = list(dict.fromkeys(port.name.partition(":")[0].partition("/")[0] for port in idle))
    efa = all(name.startswith(_EFA) for name in adapters)
    speed = _gbits(idle[0].speed_bytes_per_s)
    return view.found(
        team.job,
        "warn",
        f"network-bound, gradients over TCP on {carrier.name}, {'EFA' if efa else 'InfiniBand'} idle",
        evidence=(
            _rate_evidence(view, carrier, min(_rates(view, carrier)), view.limit("tcp_bytes_per_s")),
            Evidence(
                text=f"{', '.join(adapters[:3])}{' …' if len(adapters) > 3 else ''} ({speed} Gb/s each) idle",
                value=_in_gbits(max(max(_rates(view, port)) for port in idle)),
                unit="Gb/s",
                limit=_in_gbits(view.limit("idle") * (idle[0].speed_bytes_per_s or 0.0)),
                sense="flagged_below",
            ),
            *_overload_evidence(view, carrier),
            _team_evidence(team),
        ),
        steps=(*_nccl_steps(adapters, efa), _DEVICES, *_LESS[:1]),
        confidence=0.75,
        gpus=[uuid for one in team.ranks for uuid in one.uuids],
    )


def _nccl_steps(adapters: Sequence[str], efa: bool) -> tuple[Step, ...]:
    """How to see NCCL's choice, and how to make it use these adapters."""
    named = Step(
        text="Remove NCCL_IB_DISABLE=1 and name the adapters",
        command=f"unset NCCL_IB_DISABLE; export NCCL_IB_HCA={quote(','.join(adapters))}",
    )
    text = f"Check NCCL's choice in its log: NET/{'OFI' if efa else 'IB'}, or NET/Socket and why"
    return Step(text=text, command="export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET"), _PLUGIN if efa else named
