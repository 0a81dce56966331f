//! Which API a request speaks.

/// What the edge knows of a path. Names every path of the contract; the rest is `Other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `POST /v1/chat/completions`.
    Chat,
    /// `POST /v1/completions`.
    Completions,
    /// `POST /v1/responses`.
    Responses,
    /// `POST /v1/messages`.
    Messages,
    /// `POST /generate`.
    Generate,
    /// Embeddings, rerank, score, classify: a model, no prefix.
    NoPrompt,
    /// `GET /v1/models` and `/v1/models/{id}`.
    Models,
    /// Any other path or method.
    Other,
}

impl Dialect {
    /// Every dialect, for closed label sets.
    pub const ALL: [Self; 8] = [
        Self::Chat,
        Self::Completions,
        Self::Responses,
        Self::Messages,
        Self::Generate,
        Self::NoPrompt,
        Self::Models,
        Self::Other,
    ];

    /// Classifies a request by method and path (without query).
    pub fn classify(method: &str, path: &str) -> Self {
        match method {
            "POST" => Self::posted(path),
            "GET" if path == "/v1/models" => Self::Models,
            "GET" if path.strip_prefix("/v1/models/").is_some_and(|id| !id.is_empty()) => {
                Self::Models
            }
            _ => Self::Other,
        }
    }

    fn posted(path: &str) -> Self {
        match path {
            "/v1/chat/completions" => Self::Chat,
            "/v1/completions" => Self::Completions,
            "/v1/responses" => Self::Responses,
            "/v1/messages" => Self::Messages,
            "/generate" => Self::Generate,
            "/v1/embeddings" | "/v1/rerank" | "/v1/score" | "/v1/classify" => Self::NoPrompt,
            _ => Self::Other,
        }
    }

    /// The `path` label of metrics: a closed set, whatever clients ask for.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::Generate => "/generate",
            Self::NoPrompt => "no_prompt",
            Self::Models => "/v1/models",
            Self::Other => "other",
        }
    }

    /// Whether requests of this dialect carry a prompt to route by.
    pub fn has_prompt(self) -> bool {
        match self {
            Self::Chat | Self::Completions | Self::Responses | Self::Messages | Self::Generate => {
                true
            }
            Self::NoPrompt | Self::Models | Self::Other => false,
        }
    }
}
