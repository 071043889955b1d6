"""An elastic job that names metrics has a HorizontalPodAutoscaler, which changes its number of workers."""

from trainwright.engine.draft import Draft
from trainwright.engine.policies import companions
from trainwright.objects.resources import AUTOSCALERS


def keep(draft: Draft) -> None:
    """For a job that shall run."""
    bounds = draft.framework.autoscaling(draft.job) if draft.settings.autoscaling else None
    if bounds is None:
        companions.remove(draft, AUTOSCALERS)
        return
    job = draft.job
    target = {"apiVersion": job.kind.resource.api_version, "kind": job.kind.name, "name": job.name}
    companions.keep(draft, AUTOSCALERS, {"scaleTargetRef": target, **bounds})


def remove(draft: Draft) -> None:
    """For a job that is suspended or has finished: there is nothing to scale, and no metric to be had."""
    companions.remove(draft, AUTOSCALERS)
