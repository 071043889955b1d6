"""The texts of conditions and events: reason and message. They are upstream's, byte for byte."""

from dataclasses import dataclass

from trainwright.api.job import Job


@dataclass(frozen=True, slots=True)
class Text:
    """`reason` is appended to the kind's name. `message` may use {kind}, {name}, {namespace} and further values."""

    reason: str
    message: str

    def full_reason(self, job: Job) -> str:
        return f"{job.kind.name}{self.reason}"

    def format(self, job: Job, **values: object) -> str:
        return self.message.format(kind=job.kind.name, name=job.name, namespace=job.namespace, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The texts of most frameworks; a framework overrides what differs."""

    created: Text = Text("Created", "{kind} {name} is created.")
    running: Text = Text("Running", "{kind} {name} is running.")
    suspended: Text = Text("Suspended", "{kind} {name} is suspended.")
    resumed: Text = Text("Resumed", "{kind} {name} is resumed.")
    succeeded: Text = Text("Succeeded", "{kind} {name} is successfully completed.")
    pod_restarting: Text = Text("Restarting", "job {name} is restarting because {role} replica(s) failed.")
    group_restarting: Text = Text("Restarting", "job {name} is restarting all its replicas because {pod} {outcome}.")
    role_restarting: Text = Text("Restarting", "{kind} {name} is restarting because {failed} {role} replica(s) failed.")
    role_failed: Text = Text("Failed", "{kind} {name} is failed because {failed} {role} replica(s) failed.")
    permanent_exit_code: Text = Text("Failed", 'job "{name}" is failing because "{role}" replica(s) failed.')
    backoff_limit: Text = Text("Failed", "Job {name} has failed because it has reached the specified backoff limit")
    deadline: Text = Text("Failed", "Job {name} has failed because it was active longer than specified deadline")
    invalid: Text = Text("FailedValidation", "{kind} failed validation because {problem}")


DEFAULT_TEXTS = Texts()
TEXTS_WITHOUT_MASTER = Texts(
    running=Text("Running", "{kind} {namespace}/{name} is running."),
    succeeded=Text("Succeeded", "{kind} {namespace}/{name} successfully completed."),
)
