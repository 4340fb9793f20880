"""Containers of images that are not read, each known by a marker, with a way out."""

import re
from typing import NamedTuple


class Container(NamedTuple):
    """A format that is named in place of an error about its parts."""

    title: str
    markers: tuple[str, ...]
    """In lower case: "*.h5" is the end of a file's name, "data.mdb" its whole name, "_delta_log/" a
    folder's name, "*.zarr/" its end, and "metadata/*.json" the end of a file's name in it."""
    way_out: str
    is_table: bool = False
    """Whether its files are shards, of which only some are in the current version."""


_WRITE = "write its images as files at label/image, or as WebDataset or Parquet shards"
_FRAMES = "write some of its frames as files at label/image, as with ffmpeg"
_TABLE = "and write that as Parquet to a folder of its own"
_TFRECORD = "prepare the data set as TFRecord (TFDS: file_format='tfrecord')"

CONTAINERS = (
    Container(
        "a Delta table",
        ("_delta_log/",),
        f"read its current version, as with deltalake.DeltaTable(DIR).to_pyarrow_table(), {_TABLE}",
        is_table=True,
    ),
    Container(
        "an Iceberg table",
        ("metadata/*.metadata.json", "version-hint.text"),
        f"read its current snapshot, as with pyiceberg's scan().to_arrow(), {_TABLE}",
        is_table=True,
    ),
    Container(
        "a Hudi table",
        ("hoodie.properties",),
        f"read its current version, as with Spark, {_TABLE}",
        is_table=True,
    ),
    Container(
        "a Lance data set",
        ("*.lance", "*.lance/"),
        "write it as Parquet, as with pyarrow.parquet.write_table(lance.dataset(DIR).to_table(), "
        "FILE)",
    ),
    Container("a Zarr store", (".zgroup", ".zarray", "zarr.json", "*.zarr/"), _WRITE),
    Container("an HDF5 file", ("*.h5", "*.hdf5", "*.hdf", "*.he5", "*.nc"), _WRITE),
    Container("a file of NumPy arrays", ("*.npz", "*.npy"), _WRITE),
    Container("a MATLAB file", ("*.mat",), _WRITE),
    Container("an LMDB database", ("data.mdb", "*.lmdb"), _WRITE),
    Container("a LevelDB database", ("*.ldb",), _WRITE),
    Container("an SQLite database", ("*.sqlite", "*.sqlite3", "*.db", "*.duckdb"), _WRITE),
    Container("an MXNet RecordIO file", ("*.rec",), _WRITE),
    Container("a shard of MosaicML Streaming", ("*.mds", "*.mds.zstd", "*.mds.gz"), _WRITE),
    Container("a chunk of LitData", ("chunk-0-0.bin", "chunk-0-0.zstd.bin"), _WRITE),
    Container("an FFCV file", ("*.beton",), _WRITE),
    Container("an ORC file", ("*.orc",), "write it as Parquet, as with pyarrow.orc"),
    Container("an Avro file", ("*.avro",), "write it as Parquet, as with fastavro and pyarrow"),
    Container("an IDX file, such as MNIST's", ("*-ubyte", "*-ubyte.gz"), _WRITE),
    Container("a file of raw pixels", ("data_batch_1", "batches.meta", "*.bin"), _WRITE),
    Container("a pickled object", ("*.pkl", "*.pickle", "*.joblib"), _WRITE),
    Container("a file of tensors", ("*.pt", "*.pth", "*.safetensors"), _WRITE),
    Container("an ArrayRecord file", ("*.array_record", "*.arecord"), _TFRECORD),
    Container("a Riegeli file", ("*.riegeli",), _TFRECORD),
    Container("a Bagz file", ("*.bagz", "*.bag"), _TFRECORD),
    Container("a pointer of DVC", ("*.dvc",), "run dvc pull"),
    Container("a SavedModel", ("saved_model.pb",), "give the folder of its training images"),
    Container("a video", ("*.mp4", "*.avi", "*.mov", "*.mkv", "*.webm", "*.wmv"), _FRAMES),
)


def _index(pattern: str) -> dict[str, Container]:
    return {
        match[1]: container
        for container in CONTAINERS
        for marker in container.markers
        if (match := re.fullmatch(pattern, marker))
    }


_BY_END = _index(r"\*([^/]+)")
_BY_NAME = _index(r"([^*/]+)")
_BY_PLACE = _index(r"([^*/]+/\*[^/]+)")
_BY_FOLDER = _index(r"([^*/]+)/")
_BY_END_OF_FOLDER = _index(r"\*([^/]+)/")
_ENDS, _ENDS_OF_FOLDERS = tuple(_BY_END), tuple(_BY_END_OF_FOLDER)
_NUMBERS = re.compile(r"(-\d{5,}-of-\d{5,}|@\d+|-[-\d]+)$")


def find_container(path: str) -> Container | None:
    """Return the container whose marker is a file or a folder of a path."""
    *folders, name = path.lower().split("/")
    # The last shards of a million files are not worth a regular expression for each.
    if name[-1:].isdigit():
        name = _NUMBERS.sub("", name)
    if name in _BY_NAME:
        return _BY_NAME[name]
    # A million files may have names without a dot.
    if "." in name or name.endswith("-ubyte"):
        if name.endswith(_ENDS):
            return next(of for end, of in _BY_END.items() if name.endswith(end))
        for place, container in _BY_PLACE.items():
            folder, _, end = place.partition("/*")
            if name.endswith(end) and folder in folders[-1:]:
                return container
    for folder in folders:
        if folder in _BY_FOLDER:
            return _BY_FOLDER[folder]
        if folder.endswith(_ENDS_OF_FOLDERS):
            return next(of for end, of in _BY_END_OF_FOLDER.items() if folder.endswith(end))
    return None


def marks_container(path: str) -> bool:
    """Return whether a hidden file marks the folder that it is in, or the one above."""
    return path.endswith(("/.zgroup", "/.zarray", ".hoodie/hoodie.properties")) or path in _BY_NAME


def explain_container(path: str, container: Container) -> str:
    """Say what to do with a container, of which `path` is a part."""
    return f"Cannot read {container.title}, {path}: {container.way_out}."
