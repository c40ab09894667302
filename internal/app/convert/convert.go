package convert

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/regfile"
)

// OutputError is the error of an output that the gateway would not read: a fault of the converter, or a source beyond
// the gateway's bounds.
type OutputError struct {
	Config string // the output
	Err    error  // what the gateway reports
}

// Error implements error.
func (e *OutputError) Error() string { return "the output is no valid configuration: " + e.Err.Error() }

// Unwrap returns what the gateway reports.
func (e *OutputError) Unwrap() error { return e.Err }

// File translates a file. Files that it includes are read.
func File(path string, language Language) (*Report, error) {
	text, err := regfile.Read(path, MaxBytes+1)
	if err != nil {
		return nil, err
	}
	return Text(path, string(text), language)
}

// Text translates the text of a file. Its name is that of messages, and its folder that of the files that it includes; "-" has
// none. The language "" is found by name and text. The error is a *config.Error of the source, with all of its errors, or
// an OutputError.
func Text(name, text string, language Language) (*Report, error) {
	s := &source{dir: "."}
	if name != "-" {
		if dir, err := filepath.Abs(filepath.Dir(name)); err == nil {
			s.dir = dir
		}
	}
	if language == "" {
		language = detect(name, text)
	}
	if len(text) > MaxBytes {
		s.add(name, "")
		s.fail(pos{0, 1, 1}, "", "the file has more than %d bytes", MaxBytes)
		return nil, s.err()
	}
	s.add(name, text)
	l, m := newLedger(s), newModel()
	by := &inclusion{path: filepath.Join(s.dir, filepath.Base(name))}
	switch language {
	case HAProxy:
		convertHAProxy(s, l, m)
	case Caddy:
		convertCaddy(s, l, m, by)
	default:
		convertNginx(s, l, m, by)
	}
	if err := s.err(); err != nil {
		return nil, err
	}
	r := l.report(language)
	if len(m.listeners) == 0 {
		s.fail(pos{0, 1, 1}, "name a file with servers, or choose the language with --from", "there is nothing to listen on: no server of %s could be translated", language)
		return r, s.err()
	}
	r.Config = write(s, m, language)
	if _, err := config.Parse("(converted)", []byte(r.Config)); err != nil {
		return r, &OutputError{r.Config, err}
	}
	return r, nil
}

// detect returns the language of a file.
func detect(name, text string) Language {
	base := strings.ToLower(filepath.Base(name))
	switch {
	case strings.Contains(base, "caddyfile"):
		return Caddy
	case strings.Contains(base, "haproxy") || strings.HasSuffix(base, ".cfg"):
		return HAProxy
	case strings.Contains(base, "nginx") || strings.HasSuffix(base, ".conf"):
		return Nginx
	}
	for line := range strings.Lines(text) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "" || word[0] == '#':
		case strings.HasSuffix(strings.TrimSpace(line), ";"):
			return Nginx
		case word == "global" || word == "defaults" || word == "frontend" || word == "backend" || word == "listen":
			return HAProxy
		case word == "reverse_proxy" || word == "file_server" || word == "encode" || word == "root" || word == "handle":
			return Caddy
		}
	}
	return Nginx
}

// place returns a place as comments have it.
func (s *source) place(at pos) string {
	if at.line == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d", filepath.Base(s.name(at)), at.line)
}
