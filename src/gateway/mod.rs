//! The proxy: Pingora's hooks, each a few lines that call the pipeline.

mod framing;
