//! The proxy: Pingora's hooks, each a few lines that call the pipeline.

mod connection;
mod framing;
