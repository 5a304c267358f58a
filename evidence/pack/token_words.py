"""What cl100k_base and o200k_base are known to make of frequent words and signs; all tables hold for both.

Made from the text of packs, torch's Python files and people's programs; a test checks every entry where the encodings'
own tables are on the machine.
"""

from typing import Final


def _listed(text: str) -> list[str]:
    return text.split()


WORDS: Final = frozenset(
    _listed(
        """
API Adam All Analysis Any Apply Args Attributes BLOCK Basic Batch Block Both Bytes CNN CODE CPU CUDA
Can Cannot Check Composition Compute Context Conv Counts Create Currently Cut DEFAULT DIM Dataset
Default Detail Draft Engine Evaluation Even Every Evidence Example Examples Exception Expected FACT
FILE FREE FULL FUNCTION Failure False Final For Frame Frames Function Functional Functions Generator
Gradient Groups Holder How ID IDs Identity If In Index Initialize Input Invalid It Item LABEL LIMIT
LINE Learning Linear List Literal Loss MODULE MOST Mapping Metric Module NAME NOTE Name Names Near
Net New Node None Note Number Numbers ORDER One Only Output PREFIX Pack Parameter Parameters Path
Perform Pieces Places Please Py Python QUESTION Question REST Raises Return Rows Runs SITE SIZE
SOURCE Section See Self Shape Share Size Small Sorting Source Span TIME TODO TYPE Target Tensor The
They This Timeline To Tokens Tuple UPDATE USER Union Use Using VALUE WARNING WIDTH WINDOW WITH We
What When Whether Windows With Write You abc about above abs absolute acc account action activation
activities adam adaptive add added adding additional address adds adjust after again align aligned
all alloc allocated allocation allocator allow allowed along alpha already also always amount amp an
analysis anchor and angles annotation anonymous another any append apply are arg args argument
arguments argv around as assert assign assignment async at att attention attr attribute attributes
auto available average avg avoid back backend bad balance base based batch be because been before
begin being below best beta between bf bias binary blas block blocking blocks bn bool boolean born
both bound bounded break brief broadcast bucket budget buf buffer build but by bytes cache cached
calculate call called calling calls came can cannot cap capture case cases cast cat categories
category ceil chain change changed channel channels char check checkpoint checks child children
chosen chunk chunks cin cl claim class classes classic classification clean clear clip clone closing
closure cls code col collections column columns com come comes comm common communication compile
compiled compiler complete completed complex composition compute computed condition config
connections constant constants constraint constraints constructor contain container contains context
continue controls conv conversion convert copies copy correct could count counter counts cout
covered cpp cpu create created cross ctx cuda current currently curve custom cut cycle cycles data
dataset datasets def default defined defs del delta dense depend destination detail details detect
dev device dict dictionary different dim dimension dims disable display dist distance distributed
distribution div dl do doc document does don done dot double down dp dq draft drop ds dtype
duplicate during dynamic each effective either elem element elements elif else emb embed embedding
empty enable enabled enc encoder end ended ends engine ensure enter entries entropy entry enum epoch
epochs eps epsilon equal equals error estimate estimated eta eval evaluate evaluation even event
events every evt exact example except exception execution existing exists exit exp expand expanded
expected experimental export extend extension extensions extra extract fact factor factory facts
failed failure fan fast feature features field figure file filename files fill fills filter find
first fit fixed flag flash flat flex float floating fn folder for form format forward found fp frac
fraction frame frames free from full func function functional functions future gamma generate
generated generator generic get github give given global got gpu grad gradient graph graphs greater
grid group groups growth half handle handler handles hardware has have head heads heap height held
helper here hidden high history hold holder holders holding holds hook hooks hot how https hx id ids
idx if ignore ignored imag image images impl implement implementation implemented implements import
important in include included including incorrect index indices inf info information init initial
initialize inner inp input inputs inside inspect install instance instances instead instruction int
integer internal into invalid inverse is issues it item items iter iteration iterations iterator its
jit job join json just keep kernel key keys keyword kind know known kv kw kwargs label labels lambda
large last later layer layers layout lazy learning least leave ledger left legacy len length less
letter level libraries library like line linear lines list lists live ln load loaded loader loading
local location log logged logger logging logical long loop loss lost low lower lr main make manager
many map mapping margin mark mask mat match matching math matrix max may maybe mean member members
memory merged message meta metadata meth method metrics micro mid middle migration min mini missing
mixed mm mod mode model module moment monitor more most moving ms msg mul multi multiple must name
named names namespace native nd near nearest necessary need needed needs negative nested net network
never new next nn no node non none norm normal not note notes noun now num number numpy obj object
objects of offset old older on once one ones only open opening operation operations operator ops opt
optim optimized optimizer option optional options or order org orig original other others otherwise
ours out outer output outputs outs over override own owner pack package packed pad padding page pair
paper paragraph parallel param parameter parameters params parent parser part partial partition
parts pass passed path pathname paths peak pending per performance persistent phase physical pickle
piece pieces pin place places plain plan planes please point points policy pool pop pos position
positions positive possible post pow power pre precision pred prefix prepend prev previous print
printed prints priority private process processing prod product products profile program proj
projection properties property prototype provide provided pt pthread ptr py python quarter query
question queue quoted raise raises rand random range rank rate rates ratio raw re reach read reader
real reason recommended record reduce ref reference refs reg remove removed render replace
replacement repr represent representation request requests require required requires res reset
reshape resize respect rest ret retain return returned reverse rho right ring rng root round rounded
row rows rule run running runs runtime said same sample samples save saved scalar scale scaled
scheduler score scores script scripts section sections see seed seen segment select self sentence
seq set setting settings shape share sheet side sign signal since single site size sizes skip slots
slow small snapshot so some sort sorted source sources span spec special specific specified split
sqrt square src stable std step str string strip sub such sum super support supported swap sync sys
table tables tail take taken takes target tell template temporary tensor test tests text than that
the them then there they this thread tick ticks time timeline times tmp to tok token tokens top
torch total trace track train try tuple two type types uint undefined under unexpected uniform unit
units unknown unsafe unsupported unused up update updated updates upper us usable usage use used
user uses using utils val valid validate validation value values var variable variant vars vector
via view virtual void want wanted warn warning warnings was way we weight weighted weights were what
whatever when where whether which while whole whose why width will window windows wise with within
without words work worker workers workspace world worth would wrapped wrapper write written yield
you your zero zeros zip
"""
    )
)
"""One token alone or behind a space, at most two behind any other sign of ASCII."""

TWO: Final = frozenset(
    _listed(
        """
ALWAYS ATTENTION AdamW Applies Attention AttributeError AuxRequest BACKWARD BalanceSheet BatchNorm
Blas BlockMask BytesMain CATEGORIES CHUNK Callable Churn CircularPad Cite ConstantPad ConvTranspose
DETAIL DataChunk DataLoader DataParallel DataPipe Defaults Deprecated DeviceAnalysis DeviceType
Dropout ESTIMATE Efficient Embedding EventList Everything ExceptionWrapper ExpandedWeight FAILED
FAILURE FRAMES Facts Flatten Fragmentation FrameTable FreeKey FunctionEvent FutureWarning GENERATED
GPT GetModule GiB GradScaler GradientEdge Growth HotPath However IndexError InputMetadata
InstanceNorm IntList IsData Iterable Iterator Jacobian KiB LONGEST LayerNorm Ledger LiveBlock
MEMBERS METRIC MLP Markdown MaxPool MiB ModuleDict ModuleList Modules NVIDIA NamedTuple NestedTensor
Networks Normalization NotRequired OPENINGS Optimizer Optional OrderedDict Otherwise PARTS PHASE
ParameterDict ParamsT PoolAccount PyMethod PyRun PyType PythonEngine RESULT ReLU Reduction Register
ResNet Returns RunMain RuntimeError SDPA SECTIONS SGD SHOWN SKIP Sampler Sentences Sequence
Sequential SnapshotState SourceWindow Specifies Stacks StopIteration Stream StringFlags TOKENS
TensorDataset Tensors TokenCounter Transformer True TypeAlias TypeError TypeVar UpdatePeak
ValueError VariableType WHOLE WINDOWS WORTH accelerator accum accumulator accuracy across
activations addmm affine algorithm allocations analytical anneal anybody applied appropriate arange
argmax arxiv attn autograd automatically averaged avgs backends backward batched batches become
beginning behavior behind beside betas bfloat bidirectional bilinear births boundaries bracket
buffers calculated callable capacity capturable causal causes checkpointing chunked churn ckpt
classmethod clipping collate compatibility compiling composed computation computing condattr
containing contiguous convolution corners correction costs counted dataclass dataclasses decay
decoder defaultdict defaults demand depending deprecated depth descale descending described detach
devices differ dilation dimensional dimensions directions directly dispatch documentation doesn
dropout dtypes dual dynamo elementwise embeddings enumerate equivalent estimates everything evidence
explains explicitly extracted failing fence flatten flushes following foreach fractional
fragmentation freed frees fromkeys frozen functionality fused gather gemm getattr getitem getstate
gpt gradcheck gradients grads groupby grouped growing guessed hasattr headroom higher highest hspace
identical implementations importance inference inferred initialises initialization initialized
inplace intermediate interpolate introduced isinstance isnan iterable itertools jacobian keeps kept
kernels kinds kineto larger largest leak learnable leaves leftarrow lengths lens lifetime lived
logits longer longest losses lowest manual markdown masked materialised materialize maximize means
methods mlp modified modules momentum mse multiprocessing mypy nll nonzero noqa normalization
normalized normally nothing numbered numbers numel numerical offsets openings optimization
optimizers optionally orthogonal outcome overload packages padded pathlib permutation phases pooling
pools positional probabilities probability processes profiler profiling programs prune pruning
pytorch qkv quantized randint randn ranked recompute recorded recording redispatch reduced reducer
reduction reentrant register registration relu repeated replica replicate representing represents
requested reservation reservations reserved resnet respectively result returns rounding rpartition
sampler says scaler scatter schedulers scripting sdpa second seconds segments sentences sequence
sequences seqused setattr setdefault setstate settled several sgd shapes sharding shares should
showing shown shuffle signature sized sliding smaller smoothing softmax spans sparse spatial
specifying spectral squeeze stability stack stacks stand standard stands start state static
statistics stats steps storage strategy stream stretch strict stride strided subclass subclasses
subject submodule summed supports swapin symint synchronize targets tensors textbf their these theta
those threading three threshold through timeout together told tolist traceback tracing training
transformer transpose transposed triangular tried tril typing uncertain uninitialized unpack
unsorted unsqueeze untyped upsample variables variance version versions vocab widehat worths
wrappers
"""
    )
)
"""At most two tokens alone or behind a space, three behind any other sign."""

_RUNS: Final = _listed(
    r"""
") ")) "), "): ")[ ", ". ": "] "]( "{ ## ### ', (" ("- (( () ()) ()), (), (). ().__ (): ()] ()} ()},
(* (** (- ([ ([[ (\ (_ ({ )") )) )), )). )): ), ). ).__ ): ); )] )]) )` )} ** ,) ,), ,\ ." .", ., ._
.__ /_ /__ :// :: ::_ :]. :` =" =' =( =- ={ >` [" [- [: [:, [:- ]) ], ]. ]: ]] ]]) ]} _( _, _. _\ __
__( __) __. __: _{ `) `). `, `. `: `` ``` {\ }" }") }( }) }, }. }[ }\ }_ }` }`, }{ }}
"""
)
_RUNS_BEHIND_A_SPACE: Final = _listed(
    r"""
!= "" ", "/ "\ "_ "__ "{ '{ (" (: (\ ({ ). ): ** *, += -- --- -> .. ... ..., ../ // :, :- :: <= ==
>= >> >>> @_ [" [- [] [], \\ __ `( `/ `_ `` {"
"""
)
SIGNS: Final = frozenset((*_RUNS, *(f" {run}" for run in _RUNS_BEHIND_A_SPACE)))
"""Runs of signs that are one token."""

RARE_PAIRS: Final = frozenset(
    _listed(
        """
BQ BZ CJ CQ CZ DQ DZ EJ EY FJ FQ FV FZ GJ GK GQ GZ HJ IY JF JG JH JL JN JQ JU JW JX JY JZ KJ KQ KU
KX KZ LH LJ LQ LW LX LZ MZ NQ OJ OQ OY OZ PQ PZ QD QF QG QH QI QJ QK QO QV QW QX QY QZ RJ RQ RZ TJ
TQ UH UJ UO UQ UW UZ VH VJ VQ VU VW VX VY VZ WJ WQ WU WV WY WZ XG XH XJ XK XN XO XQ XU XV XW XZ YB
YD YF YH YI YJ YK YQ YR YU YV YX ZB ZC ZD ZG ZI ZJ ZK ZL ZM ZP ZQ ZS ZT ZU ZV bq fj fz gj gk gq hj
jg jv jw jx jy jz kq kx kz lq mz nq oq qf qg qj qk qo qv qy qz rj tj tq uq vq vz wq wv wz xg xh xj
xk xq xu xv xw yf yj yq yv zg zj zq zr zv
"""
    )
)
"""Pairs of letters of one case that are no token in one of the two."""
