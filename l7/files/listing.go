package files

import (
	"html"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxEntries bounds a listing: its page is made in memory.
const maxEntries = 10000

// entry is a line of a listing.
type entry struct {
	name     string
	kind     uint32 // S_IFDIR, S_IFREG ...
	size     int64
	modified time.Time
}

// page returns the page of a listing: folders first. Names are data: they are escaped as text and as references, to which ./ is
// prepended, so that none reads as a scheme.
func page(q *Request, list []entry, more bool) []byte {
	slices.SortFunc(list, func(a, b entry) int {
		if d, e := a.kind == unix.S_IFDIR, b.kind == unix.S_IFDIR; d != e {
			if d {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	shown := q.Shown
	if s, err := url.PathUnescape(shown); err == nil {
		shown = s
	}
	title := html.EscapeString(strings.ToValidUTF8(shown, "\uFFFD"))
	b := []byte("<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>" + title +
		"</title>\n<style>body{font-family:sans-serif}td{padding:0 1em 0 0}td.n{text-align:right}</style>\n<h1>" + title + "</h1>\n<table>\n")
	if shown != "/" {
		b = append(b, "<tr><td><a href=\"../\">../</a>\n"...)
	}
	for _, e := range list {
		name, size := e.name, strconv.FormatInt(e.size, 10)
		if e.kind == unix.S_IFDIR {
			name, size = name+"/", ""
		}
		ref := "./" + (&url.URL{Path: name}).EscapedPath()
		b = append(b, "<tr><td><a href=\""+html.EscapeString(ref)+"\">"+html.EscapeString(strings.ToValidUTF8(name, "\uFFFD"))+"</a><td class=\"n\">"+size+
			"<td>"+e.modified.Format(time.DateTime)+"\n"...)
	}
	b = append(b, "</table>\n"...)
	if more {
		b = append(b, "<p>More than "+strconv.Itoa(maxEntries)+" names: the others are not listed.\n"...)
	}
	return b
}

// types are the media types of files by the ends of their names. Those of the machine would make answers differ between machines.
var types = map[string]string{
	".7z": "application/x-7z-compressed", ".aac": "audio/aac", ".apk": "application/vnd.android.package-archive", ".atom": "application/atom+xml", ".avi": "video/x-msvideo",
	".avif": "image/avif", ".bin": "application/octet-stream", ".bmp": "image/bmp", ".bz2": "application/x-bzip2", ".css": "text/css; charset=utf-8",
	".csv": "text/csv; charset=utf-8", ".deb": "application/vnd.debian.binary-package", ".doc": "application/msword",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document", ".eot": "application/vnd.ms-fontobject", ".epub": "application/epub+zip",
	".flac": "audio/flac", ".gif": "image/gif", ".gz": "application/gzip", ".htm": "text/html; charset=utf-8", ".html": "text/html; charset=utf-8", ".ico": "image/x-icon",
	".ics": "text/calendar; charset=utf-8", ".jpeg": "image/jpeg", ".jpg": "image/jpeg", ".js": "text/javascript; charset=utf-8", ".json": "application/json",
	".jsonld": "application/ld+json", ".jxl": "image/jxl", ".m3u8": "application/vnd.apple.mpegurl", ".m4a": "audio/mp4", ".map": "application/json",
	".md": "text/markdown; charset=utf-8", ".mjs": "text/javascript; charset=utf-8", ".mkv": "video/matroska", ".mov": "video/quicktime", ".mp3": "audio/mpeg",
	".mp4": "video/mp4", ".mpd": "application/dash+xml", ".oga": "audio/ogg", ".ogg": "audio/ogg", ".ogv": "video/ogg", ".opus": "audio/ogg", ".otf": "font/otf",
	".pdf": "application/pdf", ".png": "image/png", ".ppt": "application/vnd.ms-powerpoint",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation", ".rpm": "application/x-rpm", ".rss": "application/rss+xml", ".rtf": "application/rtf",
	".svg": "image/svg+xml", ".tar": "application/x-tar", ".tgz": "application/gzip", ".tif": "image/tiff", ".tiff": "image/tiff", ".toml": "application/toml",
	".ts": "video/mp2t", ".ttf": "font/ttf", ".txt": "text/plain; charset=utf-8", ".vtt": "text/vtt; charset=utf-8", ".wasm": "application/wasm", ".wav": "audio/wav",
	".weba": "audio/webm", ".webm": "video/webm", ".webmanifest": "application/manifest+json", ".webp": "image/webp", ".woff": "font/woff", ".woff2": "font/woff2",
	".xhtml": "application/xhtml+xml", ".xls": "application/vnd.ms-excel", ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".xml": "application/xml", ".xz": "application/x-xz", ".yaml": "application/yaml", ".yml": "application/yaml", ".zip": "application/zip", ".zst": "application/zstd",
}

// typeOf returns the media type of a file: a guess by its content could make a page of what somebody has uploaded.
func typeOf(name string) string {
	if t, ok := types[strings.ToLower(path.Ext(name))]; ok {
		return t
	}
	return "application/octet-stream"
}
