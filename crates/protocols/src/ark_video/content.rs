//! `content`: the blocks of a prompt. Spec section 2.5, the block table.

use super::series::SeriesFeatures;
use crate::json::{Object, Value};
use crate::media_url::{self, Medium, UrlPolicy};
use crate::video::{CONTENT_EMPTY, INVALID, MISSING, NOT_IN_ENUM, URL_INVALID, refuse};
use tollgate_types::error::GatewayError;

const UNSUPPORTED_ROLE: &str = "InvalidParameter.UnsupportedRole";

/// Type of a content block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Text,
    Url(Medium),
    DraftTask,
}

/// The types of block, and the roles of each.
const KINDS: [(&str, BlockKind, &[&str]); 5] = [
    ("text", BlockKind::Text, &[]),
    ("image_url", BlockKind::Url(Medium::Image), &["first_frame", "last_frame", "reference_image"]),
    ("video_url", BlockKind::Url(Medium::Video), &["reference_video"]),
    ("audio_url", BlockKind::Url(Medium::Audio), &["reference_audio"]),
    ("draft_task", BlockKind::DraftTask, &[]),
];
const BLOCK_FIELDS: [&str; 7] =
    ["type", "role", "text", "image_url", "video_url", "audio_url", "draft_task"];

/// Contents of the blocks, as far as they affect price or validity.
#[derive(Debug, Default)]
pub(super) struct Content {
    has_text: bool,
    images: u32,
    has_audio: bool,
    /// A video is among the inputs.
    pub(super) has_video: bool,
    /// Commands found in the text.
    pub(super) commands: Commands,
    /// Ids of tasks whose results are inputs.
    pub(super) tasks: Vec<String>,
}

/// Commands in a prompt, such as `--resolution 1080p`: models before 2.0 obey them, beside or before the
/// fields. Ark does not document how it finds them, so two dashes before a letter count wherever they stand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Commands {
    /// True if the text has a command.
    pub(super) any: bool,
    /// A text contains a command about audio.
    pub(super) audio: bool,
    /// A text contains a command about drafts.
    pub(super) draft: bool,
}

impl Commands {
    fn parse(text: &str) -> Self {
        let mut commands = Self::default();
        for at in memchr::memmem::find_iter(text.as_bytes(), b"--") {
            // Three dashes hold two pairs: the name behind them is read from either.
            let behind = text.get(at..).unwrap_or_default().trim_start_matches('-');
            let is_letter = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
            let name = behind.split(|c| !is_letter(c)).next().unwrap_or_default();
            if !name.starts_with(char::is_alphabetic) {
                continue;
            }
            let name = name.to_lowercase();
            commands.any = true;
            commands.audio |= name.contains("audio") || name.contains("sound");
            commands.draft |= name.contains("draft");
        }
        commands
    }
}

impl Content {
    pub(super) fn read(
        body: &Object<'_>,
        series: Option<SeriesFeatures>,
        pass: &[String],
    ) -> Result<Self, GatewayError> {
        const FIELD: &str = "content";
        let value = body
            .get_non_null(FIELD)
            .ok_or_else(|| refuse(MISSING, FIELD, "`content` is required"))?;
        let blocks = value
            .elements()
            .ok_or_else(|| refuse(INVALID, FIELD, "`content` must be an array of blocks"))?;
        let mut content = Self::default();
        // Whoever puts them together again could make a command of the end of one and the next.
        let mut texts = String::new();
        for (index, block) in blocks.enumerate() {
            content.add(&block, series, pass, &format!("{FIELD}[{index}]"), &mut texts)?;
        }
        // Of all texts joined without a space, which finds the most commands.
        content.commands = Commands::parse(&texts);
        let has_media = content.images > 0 || content.has_video || !content.tasks.is_empty();
        if !has_media && !content.has_text {
            return Err(if content.has_audio {
                let message = "text-to-video needs a prompt: a block of type `text`";
                refuse(MISSING, FIELD, message)
            } else {
                refuse(CONTENT_EMPTY, FIELD, "the prompt and `content` are all empty")
            });
        }
        Ok(content)
    }

    /// Checks that the first frame is present where the model's name says that it animates images, or where
    /// the configuration requires images.
    pub(super) fn check_start(&self, model: &str, images_min: u32) -> Result<(), GatewayError> {
        const FIELD: &str = "content";
        let is_of_images = model.split('-').any(|word| word == "i2v");
        let min = images_min.max(u32::from(is_of_images));
        if self.images >= min || self.has_video || !self.tasks.is_empty() {
            return Ok(());
        }
        let message = match min {
            1 => "this model makes videos from an image: a block of type `image_url`".to_owned(),
            _ => format!("this model makes videos from {min} images at least"),
        };
        Err(refuse(MISSING, FIELD, message))
    }

    fn add(
        &mut self,
        block: &Value<'_>,
        series: Option<SeriesFeatures>,
        pass: &[String],
        at: &str,
        texts: &mut String,
    ) -> Result<(), GatewayError> {
        let block = object(block, at)?;
        crate::fields::refuse_case_variants(&block, &BLOCK_FIELDS)?;
        let (word, kind, roles) = kind_of(&block, at)?;
        crate::fields::refuse_unknown_members(&block, at, &["type", "role", word], pass)?;
        check_role(&block, roles, at)?;
        check_series(kind, series, at)?;
        let at = format!("{at}.{word}");
        let value = required(&block, word, &at)?;
        match kind {
            BlockKind::Text => {
                let text = value.as_str().ok_or_else(|| {
                    refuse(INVALID, at.clone(), format!("`{at}` must be a string"))
                })?;
                self.has_text |= !text.trim().is_empty();
                texts.push_str(&text);
            }
            BlockKind::Url(medium) => {
                check_url(&value, medium, &at, pass)?;
                match medium {
                    Medium::Image => self.images = self.images.saturating_add(1),
                    Medium::Video => self.has_video = true,
                    Medium::Audio => self.has_audio = true,
                }
            }
            BlockKind::DraftTask => self.tasks.extend(task_ids(&value, &at, pass)?),
        }
        Ok(())
    }
}

fn kind_of(
    block: &Object<'_>,
    at: &str,
) -> Result<(&'static str, BlockKind, &'static [&'static str]), GatewayError> {
    let at = format!("{at}.type");
    let value = required(block, "type", &at)?;
    let word = value.as_str();
    match KINDS.iter().find(|(name, ..)| word.as_deref() == Some(name)) {
        Some(kind) => Ok(*kind),
        None => {
            let block_names: Vec<&str> = KINDS.iter().map(|(name, ..)| *name).collect();
            let message = format!("`{at}` must be one of {}", block_names.join(", "));
            Err(refuse(NOT_IN_ENUM, at, message))
        }
    }
}

fn check_role(block: &Object<'_>, roles: &[&str], at: &str) -> Result<(), GatewayError> {
    let Some(role) = block.get_non_null("role") else { return Ok(()) };
    if role.as_str().is_some_and(|role| roles.contains(&&*role)) {
        return Ok(());
    }
    let at = format!("{at}.role");
    let message = match roles {
        [] => format!("`{at}`: a block of this type has no role"),
        _ => format!("`{at}` must be {} for a block of this type", roles.join(" or ")),
    };
    Err(refuse(UNSUPPORTED_ROLE, at, message))
}

/// The block must be one that the model takes.
fn check_series(
    kind: BlockKind,
    series: Option<SeriesFeatures>,
    at: &str,
) -> Result<(), GatewayError> {
    let Some(series) = series else { return Ok(()) };
    let lacks = match kind {
        BlockKind::Url(Medium::Video) if !series.continuation => "video",
        BlockKind::Url(Medium::Audio) if !series.audio_input => "audio",
        BlockKind::DraftTask if !series.draft => "a draft",
        _ => return Ok(()),
    };
    let message = format!("this model does not go on from {lacks}");
    Err(refuse(INVALID, format!("{at}.type"), message))
}

/// Checks the object of a block that holds its URL: `{url}`.
fn check_url(
    value: &Value<'_>,
    medium: Medium,
    at: &str,
    pass: &[String],
) -> Result<(), GatewayError> {
    let object = object(value, at)?;
    crate::fields::refuse_case_variants(&object, &["url"])?;
    if object.get_non_null("role").is_some() {
        let message = format!("`role` goes beside `type`, not into `{at}`");
        return Err(refuse(UNSUPPORTED_ROLE, format!("{at}.role"), message));
    }
    crate::fields::refuse_unknown_members(&object, at, &["url"], pass)?;
    let at = format!("{at}.url");
    let url = required(&object, "url", &at)?;
    let Some(url) = url.as_str() else {
        let message = format!("`{at}` must be a URL in a string");
        return Err(refuse(URL_INVALID, at, message));
    };
    media_url::check(&at, &url, &[medium], UrlPolicy::Any).map(|_| ())
}

/// `{task_id}`, or `{id}` as Ark itself writes it: whichever it reads must be the customer's own.
fn task_ids(value: &Value<'_>, at: &str, pass: &[String]) -> Result<Vec<String>, GatewayError> {
    const FIELDS: [&str; 2] = ["task_id", "id"];
    let object = object(value, at)?;
    crate::fields::refuse_case_variants(&object, &FIELDS)?;
    crate::fields::refuse_unknown_members(&object, at, &FIELDS, pass)?;
    let mut ids = Vec::new();
    for field in FIELDS {
        let Some(value) = object.get_non_null(field) else { continue };
        match value.as_str().filter(|id| !id.is_empty()) {
            Some(id) => ids.push(id.into_owned()),
            None => {
                let at = format!("{at}.{field}");
                let message = format!("`{at}` must be the id of a task");
                return Err(refuse(INVALID, at, message));
            }
        }
    }
    if ids.is_empty() {
        let at = format!("{at}.task_id");
        let message = format!("`{at}` is required");
        return Err(refuse(MISSING, at, message));
    }
    Ok(ids)
}

fn object<'a>(value: &Value<'a>, at: &str) -> Result<Object<'a>, GatewayError> {
    value.as_object().map_err(|error| {
        refuse(INVALID, at.to_owned(), crate::fields::no_object(at, value, &error))
    })
}

fn required<'a>(object: &Object<'a>, field: &str, at: &str) -> Result<Value<'a>, GatewayError> {
    object
        .get_non_null(field)
        .ok_or_else(|| refuse(MISSING, at.to_owned(), format!("`{at}` is required")))
}
