"""The pages of the study, one module each; every module has ``pages() -> {file name: text}``."""
