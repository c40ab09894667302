package coraza

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	crs "github.com/corazawaf/coraza-coreruleset/v4"
	"github.com/corazawaf/coraza/v3"
	"github.com/corazawaf/coraza/v3/debuglog"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/waf"
)

// root is the file system of rules for one compilation: names that begin with @ are those of the embedded rule set. Files of rules are read
// once, so that all who look at them see the same text. With check, logs that rules name are not opened, which would create them.
type root struct {
	check bool
	texts map[string]string // by path
}

func newRoot(check bool) *root { return &root{check, map[string]string{}} }

// Open implements fs.FS.
func (r *root) Open(name string) (fs.File, error) {
	if strings.HasPrefix(name, "@") {
		return crs.FS.Open(name)
	}
	return os.Open(name)
}

// ReadFile implements fs.ReadFileFS, for rules and for the lists that rules name.
func (r *root) ReadFile(name string) ([]byte, error) {
	if strings.HasPrefix(name, "@") {
		return fs.ReadFile(crs.FS, name)
	}
	text, known := r.texts[name]
	if !known {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	if r.check {
		text = withoutLogs(text)
	}
	return []byte(text), nil
}

// withoutLogs replaces the logs that directives name by /dev/null. One that could not be opened stays: its error is that of a start. Lines keep
// their numbers.
func withoutLogs(text string) string {
	var b strings.Builder
	lines := slices.Collect(strings.Lines(text))
	for i := 0; i < len(lines); i++ {
		last := i // of the directive
		for last+1 < len(lines) && strings.HasSuffix(strings.TrimSpace(lines[last]), "\\") {
			last++
		}
		var whole strings.Builder
		for _, line := range lines[i : last+1] {
			whole.WriteString(strings.TrimSuffix(strings.TrimSpace(line), "\\"))
		}
		name, path, _ := strings.Cut(whole.String(), " ")
		if isLog := strings.EqualFold(name, "SecDebugLog") || strings.EqualFold(name, "SecAuditLog"); isLog && opens(strings.Trim(strings.TrimSpace(path), `"`)) {
			b.WriteString(name + " /dev/null" + strings.Repeat("\n", last-i+1))
		} else {
			b.WriteString(strings.Join(lines[i:last+1], ""))
		}
		i = last
	}
	return b.String()
}

// opens reports whether a log could be opened, or made.
func opens(path string) bool {
	if _, err := os.Stat(path); err == nil {
		return unix.Access(path, unix.W_OK) == nil
	}
	return unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK) == nil
}

// embedded are the names that stand for parts of the rule set. Its recommended settings write a log for audits to the standard output, which
// is the gateway's. Its setup lacks the default of phases 3 to 5, without which Coraza takes their rules for ones that do not log.
var embedded = map[string][]string{
	"crs:recommended": {"Include @coraza.conf-recommended\nSecAuditEngine Off\n"},
	"crs:setup":       {"Include @crs-setup.conf.example\n" + laterPhases},
	"crs:rules":       {"Include @owasp_crs/*.conf\n"},
}

const laterPhases = `SecDefaultAction "phase:3,log,auditlog,pass"
SecDefaultAction "phase:4,log,auditlog,pass"
SecDefaultAction "phase:5,log,auditlog,pass"
`

func init() {
	embedded["crs"] = slices.Concat(embedded["crs:recommended"], embedded["crs:setup"], embedded["crs:rules"])
}

// maxFile bounds a file of rules.
const maxFile = 16 << 20

// ruleFile is a file that the configuration names, or one of a pattern.
type ruleFile struct {
	file       waf.File
	path       string // "" of what is embedded
	directives []string
}

// expand returns the files by their names, each with what has Coraza read it.
func (r *root) expand(list []waf.File) (files []ruleFile, err error) {
	var errs []error
	fail := func(f waf.File, message, hint string) {
		errs = append(errs, &waf.FileError{File: f, Message: message, Hint: hint})
	}
	for _, f := range list {
		if d, ok := embedded[f.Name]; ok {
			files = append(files, ruleFile{file: f, directives: d})
			continue
		}
		if strings.HasPrefix(f.Name, "crs:") {
			fail(f, "the rule set has no part "+f.Name, "crs is all of it; its parts are crs:recommended, crs:setup and crs:rules, in this order")
			continue
		}
		paths, err := filepath.Glob(f.Path)
		switch {
		case err != nil:
			fail(f, err.Error(), "")
		case len(paths) == 0:
			fail(f, "there is no such file", "names are relative to the configuration; crs is the embedded rule set")
		}
		for _, path := range paths {
			abs, err := filepath.Abs(path)
			if err != nil {
				fail(f, err.Error(), "")
				continue
			}
			if err := r.complete(abs); err != nil {
				e := &waf.FileError{File: f, Path: path, Message: err.Error()}
				errors.As(err, &e)
				e.File, e.Path = f, path
				errs = append(errs, e)
				continue
			}
			files = append(files, ruleFile{file: f, path: abs, directives: []string{"Include " + abs}})
		}
	}
	if f := r.withoutSetup(files); f != nil {
		fail(f.file, "crs:rules comes without its setup, and would answer every request with 500",
			"put crs:setup before it, or a file of your own that sets tx.crs_setup_version; crs is all of the rule set")
	}
	return files, errors.Join(errs...)
}

// withoutSetup returns the rules of the rule set where nothing before them sets what they begin with to check. A file that includes others
// may do so.
func (r *root) withoutSetup(files []ruleFile) *ruleFile {
	for i := range files {
		f := &files[i]
		if f.file.Name == "crs:rules" {
			return f
		}
		if f.file.Name == "crs" || f.file.Name == "crs:setup" {
			return nil
		}
		if text, err := r.readFile(f.path); f.path != "" && (err != nil || strings.Contains(text, "crs_setup_version") || strings.Contains(text, "Include")) {
			return nil
		}
	}
	return nil
}

// complete reports a file that cannot be read, or that ends in a directive that is not complete: Coraza leaves that out in silence.
func (r *root) complete(path string) error {
	text, err := r.readFile(path)
	if err != nil {
		return err
	}
	open := eachDirective(text, func(int, string) bool { return true })
	if open > 0 {
		return &waf.FileError{Line: open, Source: lineOf(text, open), Message: errUnfinished.Error()}
	}
	return nil
}

// readFile reads a file of rules once.
func (r *root) readFile(path string) (string, error) {
	if text, ok := r.texts[path]; ok {
		return text, nil
	}
	f, err := r.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errors.New("it is larger than 16 MiB")
	}
	if err == nil {
		r.texts[path] = string(text)
	}
	return string(text), err
}

// eachDirective calls f with the directives of a text and the lines where they begin, as Coraza joins lines, until f returns false. It
// returns the line of one that is not complete, 0 without.
func eachDirective(text string, f func(line int, directive string) bool) (open int) {
	var b strings.Builder
	begun, number, ticks := 0, 0, false
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if begun == 0 {
			begun = number
		}
		if !ticks && line[len(line)-1] == '`' {
			ticks = true
		} else if ticks && line[0] == '`' {
			ticks = false
		}
		switch {
		case ticks:
			b.WriteString(line + "\n")
		case strings.HasSuffix(line, "\\"):
			b.WriteString(strings.TrimSuffix(line, "\\"))
		default:
			b.WriteString(line)
			if !f(begun, b.String()) {
				return 0
			}
			b.Reset()
			begun = 0
		}
	}
	return begun
}

func lineOf(text string, number int) string {
	for line := range strings.Lines(text) {
		if number--; number == 0 {
			return strings.TrimRight(line, "\r\n")
		}
	}
	return ""
}

// find looks for a directive in the file and in those that it includes, and completes the place of the error.
func (f *ruleFile) find(r *root, directive string, e *waf.FileError) bool {
	if f.path == "" || directive == "" {
		return false
	}
	seen := map[string]bool{}
	var look func(path string) bool
	look = func(path string) (found bool) {
		text, err := r.readFile(path)
		if err != nil || seen[path] {
			return false
		}
		seen[path] = true
		eachDirective(text, func(line int, d string) bool {
			if d == directive {
				e.File, e.Path, e.Line, e.Source, found = f.file, path, line, lineOf(text, line), true
				return false
			}
			if name, rest, _ := strings.Cut(d, " "); strings.EqualFold(name, "include") {
				rest = strings.Trim(rest, `"`)
				if !filepath.IsAbs(rest) && !strings.HasPrefix(rest, "@") {
					rest = filepath.Join(filepath.Dir(path), rest)
				}
				list, _ := filepath.Glob(rest)
				if found = slices.ContainsFunc(list, look); found {
					return false
				}
			}
			return true
		})
		return found
	}
	return look(f.path)
}

// lastDirective compiles files that have an error again, and returns the directive that Coraza has read last: its errors name no place.
func lastDirective(r *root, files []ruleFile) (last string) {
	log := debuglog.DefaultWithPrinterFactory(func(io.Writer) debuglog.Printer {
		return func(_ debuglog.Level, message, fields string) {
			if text, ok := strings.CutPrefix(fields, "line="); ok && message == "Parsing directive" {
				last = unquote(text)
			}
		}
	}).WithLevel(debuglog.LevelDebug)
	cfg := coraza.NewWAFConfig().WithRootFS(&root{true, r.texts}).WithDebugLogger(log)
	for _, f := range files {
		for _, d := range f.directives {
			cfg = cfg.WithDirectives(d)
		}
	}
	_, _ = coraza.NewWAF(cfg)
	return last
}

// unquote undoes what the log does to a text; "" if it is none.
func unquote(s string) string {
	text, err := strconv.Unquote(strings.TrimSpace(s))
	if err != nil {
		return ""
	}
	return text
}
