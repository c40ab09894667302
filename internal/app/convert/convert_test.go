package convert

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/gateway/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sourcesOf are the files of testdata, in every language.
func sourcesOf(t testing.TB) (list []string) {
	t.Helper()
	for _, pattern := range []string{"*.conf", "*.cfg", "Caddyfile*"} {
		found, err := filepath.Glob(filepath.Join("testdata", pattern))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, slices.DeleteFunc(found, func(s string) bool { return strings.HasSuffix(s, ".txt") || strings.HasSuffix(s, ".yaml") })...)
	}
	if len(list) < 8 {
		t.Fatalf("only %v", list)
	}
	return list
}

// The output, and the report of every line, are recorded. Text has parsed the output as the gateway does.
func TestOutputsAreAsRecorded(t *testing.T) {
	for _, file := range sourcesOf(t) {
		r, err := File(file, "")
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		dir, err := filepath.Abs("testdata")
		if err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string]string{file + ".yaml": r.Config, file + ".txt": r.Text(true)} {
			got = strings.ReplaceAll(got, dir, "/DIR")
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s differs (-want +got), rewrite with -update:\n%s", name, diff)
			}
		}
	}
}

// Every directive has a result, and the counts are those of the lines.
func TestEveryDirectiveHasAResult(t *testing.T) {
	for _, file := range sourcesOf(t) {
		r, err := File(file, "")
		if err != nil {
			t.Fatal(err)
		}
		if n := r.Translated + r.Changed + r.Left + r.Unneeded; n != len(r.Lines) || n == 0 {
			t.Errorf("%s: %d results of %d lines", file, n, len(r.Lines))
		}
		for _, l := range r.Lines {
			if l.Line < 1 || l.Column < 1 || l.Directive == "" || weights[l.Result] > 1 && l.Reason == "" || l.Result == Unneeded && l.Reason == "" {
				t.Errorf("%s: %+v", file, l)
			}
		}
	}
}

// errorsOf returns the places and messages of a source with errors.
func errorsOf(t *testing.T, name, text string) string {
	t.Helper()
	_, err := Text(name, text, "")
	e := new(config.Error)
	if !errors.As(err, &e) {
		t.Errorf("%.60q: %v, want errors of the source", text, err)
		return ""
	}
	var s strings.Builder
	for _, p := range e.Problems {
		fmt.Fprintf(&s, "%d:%d %s; ", p.Line, p.Column, p.Message)
	}
	return s.String()
}

// All errors of a source are reported, each with its place.
func TestErrorsHaveTheirPlaces(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nginx.conf", "server {\n  listen 80;\n  server_name a", "3:3 server_name has no end; "},
		{"nginx.conf", "server {\n  listen 80\n}\nuser x;\n}\n", "3:1 } stands within listen, which begins on line 2; 5:1 there is no block that } closes; "},
		{"nginx.conf", "server {\n  listen 80;\n", "1:8 the block is not closed; "},
		{"nginx.conf", "server { return 200 \"x; }\n", "1:10 return has no end; 1:21 the quotes are not closed; "},
		{"nginx.conf", "server { ; listen 80; }", "1:10 a directive begins with a name, not with \";\"; "},
		{"nginx.conf", "http { server_tokens off; }", "1:1 there is nothing to listen on: no server of nginx could be translated; "},
		{"haproxy.cfg", "frontend a\n bind \":80\n mode 'http\n", "2:2 the quotes are not closed; 3:2 the quotes are not closed; "},
		{"haproxy.cfg", "bind :80\nmode http\nglobal\n", "1:1 bind stands in no section; 2:1 mode stands in no section; "},
		{"Caddyfile", "a.example {\n\trespond \"x\n}\n", "1:11 the block is not closed; 2:10 the quotes are not closed; "},
		{"Caddyfile", "a.example {\n\trespond x\n}\n}\n", "4:1 there is no block that } closes; "},
		{"nginx.conf", "server { listen 99999; }\nserver {\n listen 0;\n listen [::]:70000 ssl;\n listen 80;\n return 200; }", "1:10 99999 is no port; 3:2 0 is no port; 4:2 70000 is no port; "},
		{"nginx.conf", "stream { server { listen 65536; proxy_pass 192.0.2.1:70000; } }", "1:19 65536 is no port; 1:33 70000 is no port; "},
		{"nginx.conf", "upstream u { server 192.0.2.1:0; }\nserver { listen 80; client_max_body_size x;\n location / { proxy_read_timeout soon; proxy_pass http://u; } }", "1:14 0 is no port; 2:21 x is no size; 3:15 soon is no time; "},
		{"haproxy.cfg", "frontend a\n mode http\n bind :99999\n bind :0\n default_backend b\nbackend b\n mode http\n server s 192.0.2.1:65537\n timeout server soon\n", "3:2 99999 is no port; 4:2 0 is no port; "},
		{"haproxy.cfg", "frontend a\n mode http\n bind :80\n default_backend b\nbackend b\n mode http\n server s 192.0.2.1:65537\n timeout server soon\n", "7:2 65537 is no port; 8:2 soon is no time; "},
		{"Caddyfile", "a.example {\n\t@x { path /a }\n\trespond @x { body y }\n}\n", "2:5 words stand behind {; 3:13 words stand behind {; "},
		{"Caddyfile", "a.example:99999 {\n\trespond x\n}\nb.example:0 {\n}\n", "1:1 99999 is no port; 4:1 0 is no port; "},
		{"x.conf", "\x00server {}", "1:1 a NUL byte: this is a binary file, not a configuration; "},
	} {
		if got := errorsOf(t, c.name, c.text); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

// Files that include others are bounded, in depth and in bytes, and one that includes itself is an error.
func TestIncludesAreRelativeAndBounded(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("conf.d/b.conf", "server { listen 81; return 201; }")
	put("conf.d/a.conf", "server { listen 82; include snippets/answer; }")
	put("snippets/answer", "return 202;")
	r, err := File(put("nginx.conf", "http { include conf.d/*.conf; include missing; include mime.types; }"), "")
	if err != nil || !strings.Contains(r.Config, "status_code: 201") || !strings.Contains(r.Config, "status_code: 202") || r.Left != 1 {
		t.Errorf("%v %+v", err, r)
	}
	for name, text := range map[string]string{
		"loop.conf":      "include loop.conf; server { listen 80; return 200; }",
		"Caddyfile":      "import Caddyfile\n",
		"nginx.conf":     "include one; server { listen 80; return 200; }",
		"Caddyfile.self": "(a) {\n\timport a\n}\nx.example {\n\timport a\n}\n",
	} {
		put("one", "include two;")
		put("two", "include one;")
		_, err := File(put(name, text), "")
		if e := new(config.Error); !errors.As(err, &e) || !strings.Contains(err.Error(), "includes itself") && !strings.Contains(err.Error(), "deep") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What would take the machine's memory or time is an error.
func TestHostileSourcesAreBounded(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nginx.conf", strings.Repeat("a {", 100_000), "nested more than 64 deep"},
		{"Caddyfile", strings.Repeat("a {\n", 100_000), "nested more than 64 deep"},
		{"nginx.conf", strings.Repeat("a;", 300_000), "more than 200000 directives"},
		{"haproxy.cfg", "global\n" + strings.Repeat("a\n", 300_000), "more than 200000 directives"},
		{"Caddyfile", strings.Repeat("a\n", 300_000), "more than 200000 directives"},
		{"nginx.conf", strings.Repeat("#", MaxBytes+1), "more than 16777216 bytes"},
		{"nginx.conf", strings.Repeat("}", 10_000), "there is no block"},
		{"Caddyfile", "(a) {\n" + strings.Repeat("import b\n", 1000) + "}\n(b) {\n" + strings.Repeat("import c\n", 1000) + "}\n(c) {\nrespond x\n}\n:80 {\nimport a\n}\n", "more than 50000 directives"},
	} {
		if got := errorsOf(t, c.name, c.text); !strings.Contains(got, c.want) {
			t.Errorf("%.30q: %.300s", c.text, got)
		}
	}
	// ten megabytes that are valid
	big := "server { listen 80; location / { return 200; }\n" + strings.Repeat("# "+strings.Repeat("x", 1000)+"\n", 10_000) + "}"
	if _, err := Text("nginx.conf", big, ""); err != nil {
		t.Error(err)
	}
}

// The language of a file is found by its name, and else by its text.
func TestLanguages(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       Language
	}{
		{"/etc/nginx/sites-enabled/default", "server {\n  listen 80;\n}", Nginx},
		{"a.conf", "", Nginx},
		{"haproxy.cfg", "", HAProxy},
		{"x", "# a\nglobal\n daemon", HAProxy},
		{"Caddyfile.dev", "", Caddy},
		{"-", ":80\nrespond x\nfile_server\n", Caddy},
		{"-", "frontend a\n", HAProxy},
	} {
		if got := detect(c.name, c.text); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// FuzzText holds for every source: an error, or an output that the gateway reads.
func FuzzText(f *testing.F) {
	for _, file := range sourcesOf(f) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for i := range Languages {
			f.Add(string(text), uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		if strings.Contains(text, "include") || strings.Contains(text, "import") && strings.ContainsAny(text, "*/.") {
			return // files of this machine are not part of the input
		}
		_, err := Text("-", text, Languages[int(n)%len(Languages)])
		if out := new(OutputError); errors.As(err, &out) {
			t.Errorf("%v\n%s", err, out.Config)
		}
	})
}
