package convert

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/l7/accesslog"
)

// accessLog is a log of requests: the section access_log of the gateway.
type accessLog struct {
	file, syslog, facility string // a file or a server
	format                 string // "combined", "text", or "" for JSON
	template               string // of text
	fields                 []string
	size                   int64 // bytes after which another file begins
	keep                   int
}

func (a *accessLog) object() *object {
	if a == nil {
		return nil
	}
	o := (&object{}).put("file", a.file)
	if a.syslog != "" {
		o.put("syslog", (&object{}).put("address", a.syslog).put("facility", a.facility))
	}
	o.put("format", a.format).put("template", a.template).put("fields", a.fields)
	if a.size > 0 && a.file != "" && a.file != "-" {
		o.put("rotate", (&object{}).put("size", a.size).put("keep", a.keep))
	}
	return o
}

// logPart is a piece of a format: text, or a name of the source with the fields that it stands for, none where the gateway has none.
type logPart struct {
	text, name, as string
}

// templateOf returns the template of a format, the fields in it, and the names that have no counterpart: "-" stands for those.
func templateOf(parts []logPart) (template string, fields, unknown []string) {
	var t strings.Builder
	for _, p := range parts {
		switch {
		case p.name == "":
			t.WriteString(literal(p.text))
		case p.as == "":
			t.WriteByte('-')
			if !slices.Contains(unknown, p.name) {
				unknown = append(unknown, p.name)
			}
		default:
			t.WriteString(p.as)
			for _, f := range strings.Split(p.as, "${")[1:] {
				if name, _, ok := strings.Cut(f, "}"); ok && !slices.Contains(fields, name) {
					fields = append(fields, name)
				}
			}
		}
	}
	return t.String(), fields, unknown
}

// requestLine is the first line of a request of HTTP/1.1, which other versions do not have.
const requestLine = "${method} ${path} ${protocol}"

// useFormat has the log write a format. It returns what differs, "" for nothing.
func (a *accessLog) useFormat(parts []logPart) (differs string) {
	template, _, unknown := templateOf(parts)
	switch {
	case template == accesslog.Combined:
		a.format = "combined"
	case strings.ContainsAny(template, "\n\r") || !printable(template) || strings.TrimSpace(template) == "" || accessTemplate(template) != nil:
		return "the format is not one line of text: lines are JSON with the gateway's fields"
	default:
		a.format, a.template = "text", template
	}
	return missing(unknown)
}

// accessTemplate returns why a template is none.
func accessTemplate(template string) error {
	_, err := accesslog.Text(template)
	return err
}

// missing says that names have no counterpart.
func missing(unknown []string) string {
	if len(unknown) == 0 {
		return ""
	}
	return "the gateway has no " + strings.Join(unknown, ", ") + ": - stands in its place"
}

// headerField returns the field of a header of requests, "" for one that a log must not have.
func headerField(name string) string {
	field := "header." + strings.ToLower(name)
	if accesslog.CheckField(field) != nil {
		return ""
	}
	return "${" + field + "}"
}

// asField writes a name as a variable; "" stays.
func asField(name string) string {
	if name == "" {
		return ""
	}
	return "${" + name + "}"
}
