"""Losses, gradients and loss scales that are not finite, as logged; detectors evaluate series."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.signatures.signature import Head, Strength, signature

_NOT_FINITE = r"[-+]?(?i:nan|inf(?:inity)?)\b"
# A value ends its field: no prose follows it.
_ENDS = (
    r"(?=(?:\.0+)?[\"')\]}%]*\s*(?:$|[,;|})\]]|(?<=\s)[\w/.]{1,30}[\"']?\s*[:=]|"
    r"(?<=\s)[\w/.]{1,30} [-\d]|[(\[•-]))"
)
_KEY_ENDS = r"[\"']?\s*[:=]?\s*[\"'(\[]?(?:tensor\()?"

# As HF Trainer prints an evaluation, in a row of its own or in a block.
_EVAL_LOSS = r"^\W*(?:eval|test|predict)_loss[\"']?\s*[:=]\s*"

SIGNATURES = (
    signature(
        "nan_loss/value",
        "nan+loss|inf+loss|infinity+loss|nan+lossmean|inf+ce|nan+trl|nan+ppl",
        r"(?i:(?:^|[\s\"'{(,|\[/_])(?:\w+[ _/])?(?:loss|trl)"
        r"(?:[ _/](?:train|val|ce|step|mean|epoch))?)"
        rf"(?:: train)?{_KEY_ENDS}{_NOT_FINITE}{_ENDS}",
        shape=r"(?:loss|trl)[ a-z]{0,16}? (?:nan|inf|infinity)\b",
        head=Head.FIELDS,
        cumulative=True,
        unless=rf"(?i)loss[ _]scale\W{{0,4}}(?:nan|inf)|{_EVAL_LOSS}(?:nan|inf)",
    ),
    signature(
        "nan_loss/said",
        "nan+loss|infinite+loss|inf+loss|finite+loss|nanlossduringtrainingerror"
        "|probability+tensor+contains|nan+forward+found|loss+nans",
        r"(?i:\bloss (?:is|was|became|has become|went to|turned|returned in `?\w+`? is|contains) "
        r"(?:an? )?(?:`?nan`?s?|inf\w*|non-?finite|not finite))"
        r"|NanLossDuringTraining|(?i:^\W*(?:error: |warning: )?(?:detected |encountered |found )?"
        r"(?:a )?(?:nan|non-?finite|inf(?:inite)?) (?:train(?:ing)? )?loss\b)"
        r"|The loss returned in `\w+` is (?:nan|inf)"
        r"|found NaN in local forward loss calculation"
        r"|probability tensor contains either `inf`, `nan`",
        shape=r"loss[ a-z]{0,40}\b(?:nans?|inf|infinite|finite)\b|probability tensor"
        r"|(?:nans?|inf|infinite|finite)[ a-z]{0,24} loss\b|nanlossduring",
        cumulative=True,
        confidence=0.9,
        unless=r"(?i)\bif\b|enabled|check|guard|filter|when|detection",
    ),
    signature(
        "nan_eval/value",
        "nan+eval+loss|inf+eval+loss|nan+test+loss|inf+test+loss|nan+predict+loss",
        rf"{_EVAL_LOSS}{_NOT_FINITE}",
        severity="warning",
        cumulative=True,
    ),
    signature(
        "kl_negative/trl",
        "divergence+negative+precursor|divergence+starting+negative",
        r"KL divergence is starting to become negative: -\d",
        severity="warning",
        confidence=0.85,
        cumulative=True,
    ),
    signature(
        "nan_grad/value",
        "nan+norm|inf+norm|infinity+norm|nan+gnorm|inf+gnorm|nan+grad|inf+grad",
        r"(?i:\b(?:total_|global_|grad(?:ient)?s?[ _/]|g)norm|\bgrad_norm|\bnorm)"
        rf"{_KEY_ENDS}{_NOT_FINITE}{_ENDS}",
        shape=r"(?:norm|gnorm|grad)[ a-z]{0,12}? (?:nan|inf|infinity)\b",
        head=Head.FIELDS,
        cumulative=True,
    ),
    signature(
        "nan_grad/said",
        "finite+norm+clipped|nan+returned+values|nan+found+grad|inf+found+grad|nan+gradients"
        "|inf+gradients|nan+gradient|finite+gradients|finite+gradient|finite+norm+gradients",
        r"(?:The )?total norm (?:of order [\d.]+ )?for gradients from `parameters` is non-finite"
        r"|Function '\w+' returned nan values in its \d+th output"
        r"|found (?:NaN|Inf) in local grad norm"
        r"|(?i:\bgradients? (?:norm )?(?:is|are|contains?|became|has) "
        r"(?:an? )?(?:nan|inf|non-?finite|not finite))"
        r"|(?i:^\W*(?:detected |encountered |found )?"
        r"(?:nan|non-?finite|inf)(?:/inf)? gradients?\b)",
        cumulative=True,
        head=Head.PREFIX,
        confidence=0.9,
        unless=r"(?i)\bif\b|enabled|check|guard|filter|when|detection|skipp",
    ),
    signature(
        "nan_grad/refused",
        "nan+unexpected+result|inf+unexpected+result",
        r"Unexpected result (?:nan|inf|-inf) on rank \d+ at iteration",
        head=Head.WORDS,
        confidence=0.9,
    ),
    signature(
        "fp16_overflow/skipped",
        "overflow+skipping+scale|overflow+gradient+scale|overflow+detected+scale"
        "|overflow+loss+scale|overflow+skipping",
        r"(?i:overflow)! (?:Rank \d+ )?Skipping step\.?"
        r"(?: Attempted loss scale: (?P<scale_was>[\d.e+-]+)"
        r"(?:, reducing to (?P<scale>[\d.e+-]+))?)?"
        r"|Gradient overflow\.\s+Skipping step,? ?(?:loss scaler \d+ )?"
        r"(?:reducing loss scale to (?P<scale_apex>[\d.e+-]+))?"
        r"|(?:gradient )?overflow detected,? .{0,40}(?:setting )?loss scale to: "
        r"(?P<scale_fairseq>[\d.e+-]+)",
        severity="warning",
        confidence=0.9,
        head=Head.WORDS,
        cumulative=True,
    ),
    signature(
        "fp16_scale_floor/minimum",
        "minimum+scale+loss|minimum+scale+already|scale+reached+minimum|scale+minimum",
        r"[Cc]urrent loss scale already at minimum|Minimum loss scale reached"
        r"|(?i:loss scale (?:has )?reached (?:its |the )?minimum)"
        r"|(?i:loss scale is at (?:its |the )?minimum)",
    ),
    signature(
        "loss_spike/said",
        "spike+detected+training|trainingspikeexception|spiky+loss|spike+detected+loss",
        r"TrainingSpikeException|[Tt]raining spike detected|[Uu]nexpected spiky loss"
        r"|(?i:loss spike detected)",
        severity="warning",
        confidence=0.85,
        head=Head.PREFIX,
        strength=Strength.HINTED,
    ),
)
