//! The families of models that count pictures alike: a row for each, with its source.

use tollgate_types::words::words;

use super::formula::{
    GOOGLE_TILE, PictureDetail, PictureFormula, PictureFormula as Formula, shrunk, squares,
};
use super::{PdfBound, PictureSize};

words! {
    /// The formula by which a model counts the tokens of pictures: `limits.pictures` in `models.yaml`.
    PictureFamily {
        /// OpenAI's tiles of 512 pixels: GPT-4o, GPT-4.1, GPT-4.5.
        OpenaiTiles = "openai_tiles",
        /// The tiles of GPT-4o mini, which cost as much in dollars as those of GPT-4o.
        OpenaiTilesMini = "openai_tiles_mini",
        /// The tiles of o1 and o3.
        OpenaiTilesO = "openai_tiles_o",
        /// The tiles of GPT-5.
        OpenaiTiles5 = "openai_tiles_5",
        /// OpenAI's patches of 32 pixels, 1,536 at most: GPT-5.1, GPT-5.2 and the Codex models.
        OpenaiPatches = "openai_patches",
        /// Patches of the smaller models up to GPT-5.4 mini.
        OpenaiPatchesMini = "openai_patches_mini",
        /// Patches of the smallest models up to GPT-5.4 nano.
        OpenaiPatchesNano = "openai_patches_nano",
        /// The patches of o4-mini.
        OpenaiPatchesO4Mini = "openai_patches_o4_mini",
        /// The patches of GPT-5.4: 2,500 at most, and 10,000 for `detail: original`.
        OpenaiPatches2500 = "openai_patches_2500",
        /// The patches of GPT-5.5: 10,000 at most, and 2,500 for `detail: high`.
        OpenaiPatches10000 = "openai_patches_10000",
        /// The patches of GPT-5.6 Sol and later: as many as a picture has, and 2,500 for `detail: high`.
        OpenaiPatchesOriginal = "openai_patches_original",
        /// Such patches of the middle models, Terra.
        OpenaiPatchesOriginalMini = "openai_patches_original_mini",
        /// Such patches of the small models, Luna.
        OpenaiPatchesOriginalNano = "openai_patches_original_nano",
        /// Claude up to 4.6, and Haiku 4.5: 1,568 pixels and tokens.
        Anthropic = "anthropic",
        /// Claude from 4.7 on: 2,576 pixels and 4,784 tokens.
        AnthropicHigh = "anthropic_high",
        /// Gemini up to 2.5: tiles.
        GoogleTiles = "google_tiles",
        /// Gemini from 3 on: as many tokens as `mediaResolution` says.
        GoogleLevels = "google_levels",
        /// Any model of Google: the more expensive of both formulas.
        Google = "google",
        /// Qwen from 3-VL on: 32 pixels a token.
        Qwen = "qwen",
        /// Kimi K2.5 to K2.7: 28 pixels a token, 4,096 of them.
        KimiK2 = "kimi_k2",
        /// Kimi from K3 on: 28 pixels a token, 16,384 of them.
        Kimi = "kimi",
        /// GLM with pictures: 28 pixels a token, 8,000 of them.
        Glm = "glm",
        /// Grok: tiles of 448 pixels.
        Grok = "grok",
        /// Mistral: 28 pixels a token, of 1,540 at most.
        Mistral = "mistral",
        /// Doubao Seed and its predecessors: 28 pixels a token.
        Doubao = "doubao",
    }
}

impl PictureFamily {
    /// The formulas, of which the dearest counts.
    fn formulas(self) -> &'static [PictureFormula] {
        match self {
            // OpenAI's guide "Images and vision", https://developers.openai.com/api/docs/guides/images-vision,
            // for all of its rows: "Tile-based image tokenization", "Patch-based image tokenization" and
            // "Model sizing behavior", seen 2026-09 as copied by third parties.
            Self::OpenaiTiles => &[Formula::Tiles { base: 85, tile: 170 }],
            Self::OpenaiTilesMini => &[Formula::Tiles { base: 2833, tile: 5667 }],
            Self::OpenaiTilesO => &[Formula::Tiles { base: 75, tile: 150 }],
            Self::OpenaiTiles5 => &[Formula::Tiles { base: 70, tile: 140 }],
            // The guide has "tiles" for GPT-5 and patches for "gpt-5.2, Codex": GPT-5.1 is in neither list. The
            // multiplier 1.2 is that of vybestack/llxprt-code 3477 and 3483, 2026-09, which measured it.
            Self::OpenaiPatches => {
                const { &[patches(120, Some(1536), Some(1536)), Formula::Tiles { base: 70, tile: 140 }] }
            }
            Self::OpenaiPatchesMini => const { &[patches(162, Some(1536), Some(1536))] },
            Self::OpenaiPatchesNano => const { &[patches(246, Some(1536), Some(1536))] },
            Self::OpenaiPatchesO4Mini => const { &[patches(172, Some(1536), Some(1536))] },
            // "`auto` is the same as `high`" for GPT-5.4, and as `original` from GPT-5.5 on.
            Self::OpenaiPatches2500 => const { &[patches(120, Some(2500), Some(10_000))] },
            Self::OpenaiPatches10000 => const { &[patches(120, Some(10_000), Some(10_000))] },
            // "`original` keeps the input's dimensions, without a limit of pixels or patches." Terra and Luna
            // "roughly correspond to" the mini and the nano tier, whose multipliers they are taken to have.
            Self::OpenaiPatchesOriginal => const { &[patches(120, None, None)] },
            Self::OpenaiPatchesOriginalMini => const { &[patches(162, None, None)] },
            Self::OpenaiPatchesOriginalNano => const { &[patches(246, None, None)] },
            // Anthropic's guide "Vision", https://platform.claude.com/docs/en/build-with-claude/vision,
            // "Resolution and token cost", seen 2026-08: `ceil(w/28) × ceil(h/28)` up to the limit of the tier.
            // Until 2026 it had `w × h / 750`, "about 1,600 tokens" at most.
            Self::Anthropic => {
                const { &[grid(28, 1, 1_568), Formula::Area { pixels: 750, tokens_max: 1_600 }] }
            }
            Self::AnthropicHigh => {
                const { &[grid(28, 1, 4_784), Formula::Area { pixels: 750, tokens_max: 4_784 }] }
            }
            Self::GoogleTiles => &[Formula::GoogleTiles],
            Self::GoogleLevels => &[Formula::GoogleLevels],
            Self::Google => &[Formula::GoogleTiles, Formula::GoogleLevels],
            // Alibaba's guide "Visual understanding": 32 × 32 pixels a token, small pictures enlarged, and 16,384
            // tokens at most, with `vl_high_resolution_images`.
            Self::Qwen => const { &[grid(32, 256, 16_386)] },
            // The preprocessors of the open weights: 16,384 patches of 14 pixels for moonshotai/Kimi-K2.5 and 65,536
            // for Kimi-K3 (lablup/mlxcel 1342, 2026-08), four to a token, padded to whole tokens after that.
            Self::KimiK2 => const { &[grid(28, 1, 4_096 + KIMI_PADDING)] },
            Self::Kimi => const { &[grid(28, 1, 16_384 + KIMI_PADDING)] },
            // The preprocessor of zai-org/GLM-5.3-Flash, FlashML-org/FreeToken 479, 2026-09: 16 to 8,000 tokens.
            Self::Glm => const { &[grid(28, 16, 8_000)] },
            // xAI's guide "Image understanding": tiles of 448 pixels, 256 tokens each, six at most and one more,
            // "less than 1,792 tokens".
            Self::Grok => &[Formula::GrokTiles],
            // mistral-common's image encoder with the configuration of Mistral Small 3.1 and later: patches of 14
            // pixels, two by two, an end of each row, and 1,540 pixels at most.
            Self::Mistral => &[Formula::Rows { side: 28, side_max: 55 }],
            // Volcengine's guide "Visual understanding": `min(w × h / 784, limit)`, where the limit was 1,312 for
            // Doubao 1.5 and is 5,120 for `detail: high` and `xhigh` of Seed 1.6 and later.
            Self::Doubao => const { &[grid(28, 1, 5_120)] },
        }
    }
}

impl PictureFamily {
    /// The most tokens of a picture of this size; of one that nobody has seen, without it. `None` where the
    /// family has no limit.
    pub(crate) fn tokens_max(
        self,
        size: Option<PictureSize>,
        detail: PictureDetail,
    ) -> Option<u64> {
        let mut most = 0;
        for formula in self.formulas() {
            most = most.max(formula.tokens_max(size, detail)?);
        }
        Some(most)
    }

    /// The most tokens of a document of so many pages, with what draws them; `None` for models that are not
    /// documented to take any.
    pub(crate) fn document_tokens_max(self, pdf: PdfBound, detail: PictureDetail) -> Option<u64> {
        /// Anthropic's guide "PDF support": "1,500 to 3,000 tokens per page" of text.
        const PAGE_TEXT: u64 = 3_000;
        let text = pdf.content_bytes.max(PAGE_TEXT.saturating_mul(pdf.pages));
        let page = match self {
            // Google's guide "Document understanding": 258 a page up to 2.5, a level from 3 on, and no text.
            Self::GoogleTiles => return Some(GOOGLE_TILE.saturating_mul(pdf.pages)),
            Self::GoogleLevels | Self::Google => {
                let level = PictureFormula::GoogleLevels.tokens_max(None, detail)?;
                return Some(level.max(GOOGLE_TILE).saturating_mul(pdf.pages));
            }
            // OpenAI's guide "File inputs": the text of each page and a picture of it.
            Self::OpenaiTiles
            | Self::OpenaiTilesMini
            | Self::OpenaiTilesO
            | Self::OpenaiTiles5
            | Self::OpenaiPatches
            | Self::OpenaiPatchesMini
            | Self::OpenaiPatchesNano
            | Self::OpenaiPatchesO4Mini
            | Self::OpenaiPatches2500
            | Self::OpenaiPatches10000
            | Self::OpenaiPatchesOriginal
            | Self::OpenaiPatchesOriginalMini
            | Self::OpenaiPatchesOriginalNano => self.tokens_max(None, PictureDetail::High)?,
            Self::Anthropic | Self::AnthropicHigh => self.tokens_max(None, PictureDetail::Auto)?,
            _ => return None,
        };
        Some(page.saturating_mul(pdf.pages).saturating_add(text))
    }

    /// The most tokens of a second of sound; `None` for models that are not documented to hear any.
    pub(crate) fn second_of_sound_max(self) -> Option<u64> {
        match self {
            // Google's guide "Audio understanding": "32 tokens per second".
            Self::GoogleTiles | Self::GoogleLevels | Self::Google => Some(32),
            // OpenAI's guide "Realtime costs": a token for each 100 ms that a user says.
            Self::OpenaiTiles | Self::OpenaiTilesMini => Some(10),
            // Alibaba's guide "Omni-modal": 25 tokens a second, one second at least.
            Self::Qwen => Some(25),
            _ => None,
        }
    }

    /// The tokens of a picture of this size, about, for people who ask.
    pub(crate) fn tokens_typical(self, size: PictureSize) -> u64 {
        match self {
            // Smaller tiles than those of 768 pixels are documented and not measured.
            Self::GoogleTiles => {
                let size = shrunk(size, size.long(), 3072);
                GOOGLE_TILE * if size.long() <= 384 { 1 } else { squares(size, 768) }
            }
            family => {
                let most = family.tokens_max(Some(size), PictureDetail::Auto);
                most.unwrap_or_default()
            }
        }
    }
}

/// Tokens that a picture of 256 by 64 tokens gets from being padded, the longest that the models take.
const KIMI_PADDING: u64 = 256 + 64 + 1;

const fn patches(percent: u64, auto_max: Option<u64>, original_max: Option<u64>) -> PictureFormula {
    PictureFormula::Patches { percent, auto_max, original_max }
}

const fn grid(side: u64, tokens_min: u64, tokens_max: u64) -> PictureFormula {
    PictureFormula::Grid { side, tokens_min, tokens_max }
}

#[cfg(test)]
mod tests;
