"""The text that `--help` prints for each command of `local_runner.py`."""

RUN = """usage: local_runner.py [COMMAND] [DIR] [OPTION ...]

Trains and evaluates a model on a folder of images, DIR/label/image or
DIR/split/label/image, on this machine, and pushes it for serving if it is good
enough. Without a folder it uses a built-in sample of 1,797 handwritten digits.

commands
  run [DIR]      run the whole pipeline; the default command
  inspect DIR    report within seconds whether a run would start, and how
  review         look at images with doubtful labels, and correct them
  predict FILES  predict files or folders with the pushed model
  schema [DIR]   write the inferred schema of the examples for review
  runs           list earlier runs, compare two, or trace a pushed model
  weights        fetch, list or install pretrained weights
  export-data    write the ingested images for other programs, such as TFDS
  serve          serve the pushed model: a web page and a REST API
  watch          compare served images with those of training
  rollback       make an earlier pushed version the one in use
  help COMMAND   describe a command; --version prints versions

common options
  --output DIR|URL               output/NAME for images in NAME; gs://, s3://
  --config FILE                  YAML file with any of the options
  --ingest.manifest FILE         table of paths and labels
  --transform.size PIXELS        side of the images that the model sees
  --model.name NAME              such as cnn, resnet9, mobilenet_v2
  --model.weights none|FILE      start from random weights, or those of a file
  --training.recipe NAME         small, cifar, photos or transfer
  --training.epochs N            passes over the training images
  --augmentation.flip true       mirror images; for photographs
  --evaluation.min_accuracy X    lowest accuracy of a model that is pushed
  --new_task                     replace a model in use of other labels
"""
INSPECT = """usage: local_runner.py inspect DIR [OPTION ...]

Inspects a folder of images within seconds: classes, sizes, formats, files that
ingest would reject, network and recipe that a run would use, and what it would
write. Exits with 0 if a run would start. Takes all options of a run.
"""
PREDICT = """usage: local_runner.py predict FILE|DIR ... [--model VERSION] [--to TABLE]

Predicts files, and all files below folders, with a pushed model; paths or URLs.
Images are read as ingest reads them, so that the model sees what it saw in
training; files that ingest would reject are listed with the reason.

  --model VERSION    a version in --output, or the folder of any SavedModel of
                     this pipeline: the newest version
  --to TABLE         .parquet, .csv or .jsonl, one row per file in the order of
                     the files, replaced if it exists; without it the first
                     predictions are printed
  --predict.top K    labels per image: 3
  --output DIR       output folder of the run: output
"""
SCHEMA = """usage: local_runner.py schema [DIR] [--to FILE] [OPTION ...]

Writes the schema of a folder of images, for you to review and to use in later
runs as --validation.schema. Takes all options of a run.

  --to FILE      file to write: schema.pbtxt in --output
  --output DIR   output folder for everything else: output
"""
RUNS = """usage: local_runner.py runs [--output DIR]
                            [--compare A B | --lineage VERSION | --repair |
                             --send | --prune N [--yes]]

Lists the runs of an output folder, newest last, with their changes and results.

  --output DIR       the folder: output
  --compare A B      write a page: is run B better than run A, on which images,
                     and what differs. A run is its number in the list, the
                     beginning of its id, the version that it pushed, or another
                     output folder, for its newest run
  --to FILE          the page: comparison.html in the output folder of run B
  --lineage VERSION  trace a pushed model, a version or its folder, back to its
                     images
  --send             send the runs to the services of the section tracking that
                     have not received them
  --json             print JSON
  --prune N          print which artifacts neither the newest N finished runs,
                     nor later ones, nor the model in use need; with --yes,
                     remove them. Records and pushed models stay
  --repair           set aside unreadable metadata and records, so that the next
                     run starts from scratch; pushed models stay
"""
WEIGHTS = """usage: local_runner.py weights fetch NAME | list | use FILE

Gets ImageNet's weights, from which a network for photographs starts. A run
looks for them by itself; these commands are for machines without internet.

  fetch NAME   download the weights of a network, such as mobilenet_v2; the
               name of the file contains its checksum
  list         list the networks, and which weights are on this machine
  use FILE     check a fetched file from another machine, and keep it where
               runs find it
"""
ROLLBACK = """usage: local_runner.py rollback [VERSION] [--output DIR]

Makes an earlier version of the pushed model the one in use, by pushing it again
as the newest version, so that every server takes it. Runs do not push the newer
models again; another model replaces it as soon as it is blessed against it.

  VERSION        a version in --output: the one before the version in use
  --output DIR   output folder or URL of the runs: output
"""
