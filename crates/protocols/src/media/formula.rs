//! Formulas for the tokens of a picture.

use super::PictureSize;

/// The level of detail at which a model reads a picture, in the words of any dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PictureDetail {
    /// No level: the upstream decides.
    #[default]
    Auto,
    /// OpenAI's and Google's `low`.
    Low,
    /// Google's `medium` level alone.
    Medium,
    /// OpenAI's and Google's `high`.
    High,
    /// OpenAI's `original`, without shrinking.
    Original,
    /// Google's `ultra_high` level alone.
    UltraHigh,
    /// A word that is not documented: the dearest counts.
    Unknown,
}

impl PictureDetail {
    /// The detail of this word, in OpenAI's spelling or in Google's.
    pub(crate) fn from_word(word: &str) -> Self {
        let word = word.to_ascii_lowercase();
        match word.strip_prefix("media_resolution_").unwrap_or(&word) {
            "auto" | "unspecified" => Self::Auto,
            "low" => Self::Low,
            "medium" => Self::Medium,
            "high" => Self::High,
            "original" => Self::Original,
            "ultra_high" => Self::UltraHigh,
            _ => Self::Unknown,
        }
    }
}

/// A formula for the tokens of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PictureFormula {
    /// OpenAI's: tokens for the picture, and for each tile of 512 pixels of it, shrunk to 2,048 pixels at the
    /// long side and 768 at the short one. `low` has no tiles.
    Tiles { base: u64, tile: u64 },
    /// OpenAI's: a percentage of the patches of 32 pixels, limited to `auto_max` by default and to
    /// `original_max` for `original`. `None` is no limit.
    Patches { percent: u64, auto_max: Option<u64>, original_max: Option<u64> },
    /// A token for each square of so many pixels.
    Grid { side: u64, tokens_min: u64, tokens_max: u64 },
    /// One token per square of `side` pixels and one per row, with a limited number of squares.
    Rows { side: u64, side_max: u64 },
    /// One token per so many pixels, up to a maximum.
    Area { pixels: u64, tokens_max: u64 },
    /// Google's tiles of 256 to 768 pixels.
    GoogleTiles,
    /// Google's levels of `mediaResolution`.
    GoogleLevels,
    /// xAI's tiles of 448 pixels.
    GrokTiles,
}

/// Patches of OpenAI's `high` where models know `original` too.
const HIGH_PATCHES: u64 = 2500;
/// Patches of OpenAI's `low` where models know `original` too: 512 by 512 pixels, to which smaller pictures are
/// enlarged. Models that do not know it look as closely as for `high` (openai/openai-python 2851).
const LOW_PATCHES: u64 = 256;
/// Tokens of one Google tile.
pub(super) const GOOGLE_TILE: u64 = 258;

impl PictureFormula {
    pub(super) fn tokens_max(
        self,
        size: Option<PictureSize>,
        detail: PictureDetail,
    ) -> Option<u64> {
        match self {
            Self::Tiles { base, tile } => {
                let is_low = detail == PictureDetail::Low;
                let tiles = if is_low { 0 } else { size.map_or(OPENAI_TILES_MAX, openai_tiles) };
                Some(base + tile * tiles)
            }
            Self::Patches { percent, auto_max, original_max } => {
                let knows_original = auto_max != Some(1536);
                let patches = size.map(|size| squares(size, 32));
                let limit = match detail {
                    PictureDetail::Low if knows_original => {
                        return Some(percent_of(LOW_PATCHES, percent));
                    }
                    PictureDetail::High if knows_original => Some(HIGH_PATCHES),
                    PictureDetail::Original | PictureDetail::Unknown => original_max,
                    _ => auto_max,
                };
                let patches = match (patches, limit) {
                    (Some(patches), Some(limit)) => patches.min(limit),
                    (patches, limit) => patches.or(limit)?,
                };
                Some(percent_of(patches, percent))
            }
            Self::Grid { side, tokens_min, tokens_max } => {
                let tokens = size.map_or(tokens_max, |size| squares(size, side));
                Some(tokens.clamp(tokens_min, tokens_max))
            }
            Self::Rows { side, side_max } => {
                let most = side_max * (side_max + 1);
                let tokens = |size: PictureSize| {
                    squares(size, side).saturating_add(size.long().div_ceil(side))
                };
                Some(size.map_or(most, tokens).min(most))
            }
            Self::Area { pixels, tokens_max } => {
                let tokens =
                    |size: PictureSize| size.width.saturating_mul(size.height).div_ceil(pixels);
                Some(size.map_or(tokens_max, tokens).clamp(1, tokens_max))
            }
            Self::GoogleTiles => Some(GOOGLE_TILE * size.map_or(GOOGLE_TILES_MAX, google_tiles)),
            Self::GoogleLevels => Some(match detail {
                PictureDetail::Low => 280,
                PictureDetail::Medium => 560,
                PictureDetail::Auto | PictureDetail::High => 1_120,
                PictureDetail::Original | PictureDetail::UltraHigh | PictureDetail::Unknown => {
                    2_240
                }
            }),
            Self::GrokTiles => {
                let tiles = size.map_or(GROK_TILES_MAX, |size| squares(size, 448));
                Some(256 * (tiles.min(GROK_TILES_MAX) + 1))
            }
        }
    }
}

/// Tiles of a picture of 2,048 by 768 pixels.
const OPENAI_TILES_MAX: u64 = 8;
/// Maximum number of tiles counted by xAI, in addition to one for the whole picture.
const GROK_TILES_MAX: u64 = 6;
/// Tiles of a picture of 3,072 by 384 pixels.
pub(super) const GOOGLE_TILES_MAX: u64 = 24;

/// A number of tokens times so many hundredths, rounded up.
fn percent_of(tokens: u64, percent: u64) -> u64 {
    tokens.saturating_mul(percent).div_ceil(100)
}

/// Squares with sides of so many pixels that cover a picture.
pub(super) fn squares(size: PictureSize, side: u64) -> u64 {
    size.width.div_ceil(side).saturating_mul(size.height.div_ceil(side))
}

/// Size of a picture after one of its sides is reduced to `side_max`; rounded up.
pub(super) fn shrunk(size: PictureSize, side: u64, side_max: u64) -> PictureSize {
    if side <= side_max {
        return size;
    }
    let scaled = |length: u64| length.saturating_mul(side_max).div_ceil(side);
    PictureSize { width: scaled(size.width), height: scaled(size.height) }
}

/// OpenAI's guide: "scaled to fit within a 2048 × 2048 square", then "so that the shortest side is 768 pixels".
/// Smaller ones are not enlarged: its calculator of prices has one tile for 150 by 150 pixels.
fn openai_tiles(size: PictureSize) -> u64 {
    let size = shrunk(size, size.long(), 2048);
    squares(shrunk(size, size.short(), 768), 512).min(OPENAI_TILES_MAX)
}

/// Google's guide "Understand and count tokens": one tile up to 384 pixels; larger pictures are cut into tiles
/// of two thirds of the short side, of 256 to 768 pixels. Its older guides have tiles of 768 alone, and
/// googleapis/python-genai 1349 measured one tile for every picture.
fn google_tiles(size: PictureSize) -> u64 {
    if size.long() <= 384 {
        return 1;
    }
    let size = shrunk(size, size.long(), 3072);
    let tile = (size.short() * 2 / 3).clamp(256, 768);
    squares(size, tile).min(GOOGLE_TILES_MAX)
}
