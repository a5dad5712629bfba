//! Style sheet, scripts and icon, embedded. Their names carry a fingerprint of what is in them, so a
//! browser keeps each for ever and a new version has another name.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use once_cell::sync::Lazy;
use sha2::{Digest as _, Sha256};

/// A static file: its name in the repository, its type and its content.
struct Asset {
    name: &'static str,
    media_type: &'static str,
    content: &'static str,
}

const ASSETS: [Asset; 8] = [
    Asset {
        name: "app.css",
        media_type: "text/css; charset=utf-8",
        content: include_str!("assets/app.css"),
    },
    Asset {
        name: "app.js",
        media_type: "text/javascript; charset=utf-8",
        content: include_str!("assets/app.js"),
    },
    Asset {
        name: "tail.js",
        media_type: "text/javascript; charset=utf-8",
        content: include_str!("assets/tail.js"),
    },
    Asset {
        name: "playground.js",
        media_type: "text/javascript; charset=utf-8",
        content: include_str!("assets/playground.js"),
    },
    Asset {
        name: "icon.svg",
        media_type: "image/svg+xml",
        content: include_str!("assets/icon.svg"),
    },
    // htmx 2.0.11, zero-clause BSD: assets/htmx.LICENSE.
    Asset {
        name: "htmx.js",
        media_type: "text/javascript; charset=utf-8",
        content: include_str!("assets/htmx-2.0.11.min.js"),
    },
    // uPlot 1.6.32, MIT: assets/uplot.LICENSE.
    Asset {
        name: "uplot.js",
        media_type: "text/javascript; charset=utf-8",
        content: include_str!("assets/uplot-1.6.32.min.js"),
    },
    Asset {
        name: "uplot.css",
        media_type: "text/css; charset=utf-8",
        content: include_str!("assets/uplot-1.6.32.min.css"),
    },
];

/// The first hex digits of the SHA-256 of all of them: part of every address.
static VERSION: Lazy<String> = Lazy::new(|| {
    let mut digest = Sha256::new();
    for asset in &ASSETS {
        digest.update(asset.name);
        // Of all files together: one address changes with each of them, and no list of digests is needed.
        digest.update(asset.content);
    }
    digest.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
});

/// Path of the assets of the console at `base`, without a trailing slash.
pub(super) fn directory(base: &str) -> String {
    format!("{base}/assets/{}", *VERSION)
}

/// `GET …/assets/{version}/{name}`
pub async fn serve(Path((version, name)): Path<(String, String)>) -> Response {
    // A page of an older version gets a 404: under its address another file would be cached for a year.
    let asset = ASSETS.iter().find(|asset| asset.name == name && version == *VERSION);
    match asset {
        Some(asset) => {
            let headers = [
                (header::CONTENT_TYPE, asset.media_type),
                (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
            ];
            (headers, asset.content).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
