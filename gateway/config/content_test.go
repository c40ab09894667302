package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const filesFile = "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP%s}]\nroutes: [{name: r, rules: [{static: {root: /%s}%s}]}]\n"

// TestWrongFilesCodingsAndCertificates has each kind of mistake, and what its message says.
func TestWrongFilesCodingsAndCertificates(t *testing.T) {
	files := func(listener, static, rule string) string {
		return strings.NewReplacer("HTTP%s", "HTTP"+listener, "/%s", "/"+static, "}%s}]", "}"+rule+"}]").Replace(filesFile)
	}
	acme := func(keys, more string) string {
		return "listeners: [{name: l, address: 127.0.0.1:443, protocol: HTTPS, tls: {acme: {" + keys + "}}}" + more + "]\n"
	}
	const ok = "names: a.example, dir: d, agree_to_terms: true"
	for _, c := range []struct{ file, want string }{
		{files("", ", try_files: index.html", ""), `"index.html" begins neither with a slash`},
		{files("", ", try_files: '$uri'", ""), "the path of the request is ${path}"},
		{files("", ", try_files: '/${host}'", ""), "another variable than path"},
		{files("", ", try_files: '${path}/../x'", ""), "leads out of the folder"},
		{files("", ", index: a/b", ""), "index has no name of a file"},
		{files("", ", index: ..", ""), "index has no name of a file"},
		{files("", ", precompressed: deflate", ""), "gzip"},
		{files("", ", precompressed: [br, br]", ""), `coding "br"`},
		{files("", ", cache_control: \"a\\nb\"", ""), "no value of a field"},
		{files("", "", ", filters: [{type: FixedResponse}]"), "static is not used: the filter on line 2 answers"},
		{files("", "", ", filters: [{type: RequestHeaderModifier, remove: [x]}]"), "RequestHeaderModifier has no effect"},
		{files("", "", ", timeouts: {request: 1s}"), "timeouts has no effect"},
		{strings.Replace(files("", "", ""), "static: {root: /}", "name: x", 1), "add backend_refs, static, or a filter that answers"},
		{files(", compression: {types: TEXT/html}", "", ""), "types has no media type"},
		{files(", compression: {types: html}", "", ""), "types has no media type"},
		{files(", compression: {codings: zip}", "", ""), "zstd"},
		{strings.Replace(kinds["tcp"], "protocol: TCP}]", "protocol: TCP, compression: {}}]", 1), "compression is for HTTP and HTTPS"},
		{acme("names: '*.a.example', dir: d, agree_to_terms: true", ""), "proven by DNS"},
		{acme("names: localhost, dir: d, agree_to_terms: true", ""), "names has none that ACME can prove"},
		{acme("names: [a.example, A.example.], dir: d, agree_to_terms: true", ""), `name "a.example"`},
		{acme("names: a.example, dir: d, agree_to_terms: false", ""), "the authority makes no account"},
		{acme("names: a.example, dir: d", ""), `"agree_to_terms"`},
		{acme(ok+", directory: 'http://ca.example/'", ""), "no URL with https"},
		{acme(ok+", contact: admin", ""), "such as mailto:"},
		{acme(ok+", challenges: dns-01", ""), "tls-alpn-01"},
		{acme(ok+", challenges: http-01", ""), "nothing answers the challenge http-01"},
		{strings.Replace(acme(ok+", challenges: tls-alpn-01", ""), "tls:", "versions: '3', tls:", 1), "the challenge tls-alpn-01 is over TCP"},
		{acme(ok, ", {name: m, address: 127.0.0.1:444, protocol: HTTPS, tls: {acme: {names: b.example, dir: d, agree_to_terms: true, contact: 'mailto:a@b'}}}"), "has another authority, account or challenges"},
		{"listeners: [{name: l, address: 127.0.0.1:443, protocol: HTTPS, tls: {min_version: '1.3'}}]\n", "neither certificates nor acme"},
	} {
		if _, err := Parse("f", []byte(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
	for _, file := range []string{
		files("", "", ""), files(", compression: {}", ", try_files: ['${path}', '/x'], precompressed: [zstd, br, gzip]", ""), acme(ok, ""),
		acme(ok+", challenges: http-01", ", {name: m, address: 127.0.0.1:80, protocol: HTTP}"),
		acme(ok, ", {name: m, address: 127.0.0.1:444, protocol: HTTPS, tls: {acme: {names: b.example, dir: d, agree_to_terms: true}}}"),
	} {
		if _, err := Parse("f", []byte(file)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestCheckReadsFolders has `check` report what a start would.
func TestCheckReadsFolders(t *testing.T) {
	dir := t.TempDir()
	for root, want := range map[string]string{"none": "the folder cannot be used", ".": "", dir: ""} {
		text := strings.NewReplacer("HTTP%s", "HTTP", "/%s", root, "}%s}]", "}}]").Replace(filesFile)
		file := filepath.Join(dir, "f")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(file)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", root, err, want)
		}
	}
}
