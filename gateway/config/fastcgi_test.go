package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// phpFile is a file with a pool that speaks FastCGI, with more keys of the pool and of fastcgi.
func phpFile(pool, keys string) string {
	return "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP}]\nroutes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]\n" +
		"pools: [{name: p, protocol: FASTCGI" + pool + ", fastcgi: {root: /srv/www" + keys + "}, backends: [{address: 'unix:/run/php.sock'}]}]\n"
}

func TestKeysOfFastCGI(t *testing.T) {
	c, err := Parse("f", []byte(phpFile("", ", local_root: www, index: main.php, fallback: /app.php, extensions: [.php, .phar], keep_connections: true, content_buffer: 5, params: [{name: APP_ENV, value: 'x-${host}'}, {name: DEBUG, value: 1}]")))
	if err != nil {
		t.Fatal(err)
	}
	want := &FastCGI{
		Root: "/srv/www", LocalRoot: "www", CheckScripts: true, Index: "main.php", Fallback: "/app.php", Extensions: []string{".php", ".phar"}, Keep: true, ContentBuffer: 5,
		Params: []FastCGIParam{{"APP_ENV", "x-${host}"}, {"DEBUG", "1"}},
	}
	if got := c.Pools[0].FastCGI; !reflect.DeepEqual(got, want) || got.Local(c) != c.Beside("www") {
		t.Errorf("%+v, %s", got, got.Local(c))
	}
	if c, err = Parse("f", []byte(phpFile("", ""))); err != nil {
		t.Fatal(err)
	}
	want = newFastCGI()
	want.Root = "/srv/www"
	if got := c.Pools[0].FastCGI; !reflect.DeepEqual(got, want) || got.Local(c) != "/srv/www" {
		t.Errorf("%+v", got)
	}
	if c, err = Parse("f", []byte(phpFile("", ", check_scripts: false"))); err != nil || c.Pools[0].FastCGI.Local(c) != "" {
		t.Errorf("%v", err)
	}
}

func TestMistakesInFastCGI(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{strings.Replace(phpFile("", ""), "protocol: FASTCGI, ", "", 1), "speaks HTTP"},
		{strings.Replace(phpFile("", ""), "fastcgi: {root: /srv/www}, ", "", 1), `lacks the key "fastcgi"`},
		{strings.Replace(phpFile("", ""), "/srv/www", "www", 1), "no absolute path"},
		{phpFile("", ", local_root: w, check_scripts: false"), "local_root has no effect"},
		{phpFile("", ", index: a/b"), "no name of a file"},
		{phpFile("", ", index: .."), "no name of a file"},
		{phpFile("", ", fallback: index.php"), "no path below root"},
		{phpFile("", ", fallback: /a/../../b.php"), "no path below root"},
		{phpFile("", ", extensions: php"), "no end of a name"},
		{phpFile("", ", extensions: ./p"), "no end of a name"},
		{phpFile("", ", content_buffer: 67108865"), "67108864"},
		{phpFile("", ", params: [{name: app, value: x}]"), "no name of a variable"},
		{phpFile("", ", params: [{name: HTTP_PROXY, value: x}]"), "cannot be set"},
		{phpFile("", ", params: [{name: CONTENT_LENGTH, value: x}]"), "cannot be set"},
		{phpFile("", ", params: [{name: A, value: '${x}'}]"), "unknown variable"},
		{phpFile("", ", params: [{name: A, value: \"a\\nb\"}]"), "control characters"},
		{phpFile("", ", params: [{name: A, value: x}, {name: A, value: y}]"), `variable "A"`},
		{phpFile(", proxy_protocol: v1", ""), "take no PROXY header"},
		{phpFile(", field_names: preserve", ""), "speaks FASTCGI"},
		{phpFile(", health: {type: grpc}", ""), "gRPC is HTTP/2"},
		{phpFile(", health: {type: https}", ""), "without TLS"},
	} {
		if _, err := Parse("f", []byte(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
	if _, err := Parse("f", []byte(phpFile(", health: {type: http, http: {path: /ping}}", ""))); err != nil {
		t.Error(err)
	}
}

// The folder in which scripts are looked up has to be there.
func TestCheckReadsTheFolderOfScripts(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gw.yaml")
	for keys, wrong := range map[string]bool{"": true, ", check_scripts: false": false, ", local_root: www": false, ", local_root: none": true} {
		if err := os.MkdirAll(filepath.Join(dir, "www"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(phpFile("", keys), "/srv/www", "/srv/www/not/there", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(file)
		if (err != nil) != wrong || err != nil && !strings.Contains(err.Error(), "the folder cannot be used") {
			t.Errorf("%s: %v", keys, err)
		}
	}
}

func TestTheExampleOfPHPIsValid(t *testing.T) {
	if _, err := Load("../../examples/php.yaml"); err != nil {
		t.Error(err)
	}
}
