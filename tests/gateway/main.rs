//! What customers meet at the gateway: every path, every limit and fault, through the real binary.

#[path = "../harness/mod.rs"]
mod harness;

mod balance;
mod connections;
mod content_codings;
mod contract;
mod costs;
mod credentials;
mod customer_prices;
mod descriptors;
mod embeddings;
mod fairness;
mod fallbacks;
mod gemini;
mod holds;
mod hosted;
mod hostile;
mod images;
mod kept_alive;
mod limits;
mod listeners;
mod local;
mod mcp;
mod media_in_chat;
mod messages;
mod moderations;
mod money;
mod odd_upstreams;
mod overload;
mod own_headers;
mod price_attacks;
mod quotas;
mod reach;
mod recipes;
mod refusals;
mod relay;
mod rerank;
mod responses;
mod sim;
mod speech;
mod transcription;
mod translation;
mod videos;
mod webhooks;
mod websocket;
