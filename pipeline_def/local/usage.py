"""What `--help` prints first: a screen for each command of `local_runner.py`."""

from __future__ import annotations

RUN = """usage: local_runner.py [COMMAND] [DIR] [OPTION ...]

Turns a folder of images, DIR/label/image or DIR/split/label/image, into a
trained and evaluated model that serves, on this machine. Without a folder it
takes a built-in sample, 1,797 handwritten digits.

commands
  run [DIR]      the whole pipeline; what is done without a command
  inspect DIR    says within seconds whether a run would start, and on what
  predict FILES  asks the pushed model about files or folders
  schema [DIR]   writes what the examples are like, for a person to correct
  runs           lists earlier runs, compares two, traces a pushed model
  serve          a page and a REST that answer with the pushed model

options that people use
  --output DIR|URL               everything that is written: output; gs:// s3://
  --config FILE                  YAML with any of the options
  --ingest.manifest FILE         a table of paths and labels
  --transform.size PIXELS        side of the images that the model sees
  --model.name NAME              such as cnn, resnet9, mobilenet_v2
  --model.weights imagenet|FILE  start from pretrained weights
  --training.recipe NAME         small, cifar, photos or transfer
  --training.epochs N            passes over the training images
  --augmentation.flip true       mirror images; for photographs
  --evaluation.min_accuracy X    lowest accuracy of a model that is pushed
"""
INSPECT = """usage: local_runner.py inspect DIR [OPTION ...]

Looks at a folder of images, within seconds: classes, sizes, formats, files that
ingest would reject, network and recipe that a run would take, and what it would
write. Exits with 0 if a run would start. Takes all options of a run.
"""
PREDICT = """usage: local_runner.py predict FILE|DIR ... [--model VERSION] [--to TABLE]

Asks a pushed model about files, and about all files below folders, paths or
URLs. Each is read as ingest reads it, so that the model sees what it saw in
training; files that ingest would reject are listed with the reason.

  --model VERSION    a version in --output, or the folder of any SavedModel of
                     this pipeline: the newest version
  --to TABLE         .parquet, .csv or .jsonl, a row for each file in the order
                     of the files; without it the first answers are printed
  --predict.top K    labels for each image: 3
  --output DIR       where the run wrote to: output
"""
SCHEMA = """usage: local_runner.py schema [DIR] [--to FILE] [OPTION ...]

Writes the schema of a folder of images, for a person to correct and to give to
later runs as --validation.schema. Takes all options of a run.

  --to FILE      file to write: schema.pbtxt in --output
  --output DIR   everything else that is written: output
"""
RUNS = """usage: local_runner.py runs [--output DIR]
                            [--compare A B | --lineage VERSION | --repair]

Lists the runs of an output folder, newest last, with what each changed and
reached.

  --output DIR       the folder: output
  --compare A B      writes a page: is run B better than run A, on which images,
                     and what differs. A run is its number in the list, the
                     beginning of its id, the version that it pushed, or another
                     output folder, for the newest run there
  --to FILE          the page: comparison.html in the output folder of run B
  --lineage VERSION  where a pushed model, a version or its folder, comes from,
                     down to its images
  --json             print JSON, for other programs
  --repair           set aside metadata and records that cannot be read, so that
                     the next run begins anew; pushed models stay
"""
