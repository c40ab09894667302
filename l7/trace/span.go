package trace

import (
	"strings"
	"time"

	"github.com/millrace/millrace/l7/accesslog"
)

// Kind is the role of a span, by the numbers of OTLP.
type Kind int

// Values of Kind.
const (
	KindServer Kind = 2
	KindClient Kind = 3
)

// Span is a part of the time of a request.
type Span struct {
	Context
	Parent       [8]byte // 0 is none
	Kind         Kind
	Name         string
	Began, Ended time.Time
	Header       time.Time // when the header of the response came; zero: none did
	Failed       bool
	Texts        []Text
	Numbers      []Number
}

// Text is an attribute with text.
type Text struct{ Key, Value string }

// Number is an attribute with a number.
type Number struct {
	Key   string
	Value int64
}

// maxText bounds an attribute.
const maxText = 256

func clone(s string) string {
	return strings.ToValidUTF8(strings.Clone(s[:min(len(s), maxText)]), "\ufffd")
}

// add adds an attribute, if it has a value.
func (s *Span) add(key, value string) {
	if value != "" {
		s.Texts = append(s.Texts, Text{key, clone(value)})
	}
}

// fill adds what a record has, by the names of OpenTelemetry's semantic conventions. Queries are left out: they may have secrets.
func (s *Span) fill(r *accesslog.Record) {
	path, _, _ := strings.Cut(r.Path, "?")
	version, _ := strings.CutPrefix(r.Protocol, "HTTP/")
	agent := ""
	for i := range r.Fields {
		if r.Fields[i].Name == "user-agent" {
			agent = r.Fields[i].Value
			break
		}
	}
	s.add("http.request.method", r.Method)
	s.add("url.path", path)
	s.add("server.address", r.Host)
	s.add("network.protocol.version", version)
	s.add("user_agent.original", agent)
	s.add("millrace.listener", r.Listener)
	s.add("millrace.route", r.Route)
	s.add("millrace.rule", r.Rule)
	s.add("millrace.cache", r.Cache)
	s.add("error.type", r.Error)
	if a := r.Address(); a.IsValid() {
		s.add("client.address", a.String())
	}
	s.Numbers = append(s.Numbers, Number{"http.response.status_code", int64(r.Status)}, Number{"http.response.body.size", int64(r.BytesOut)})
}
