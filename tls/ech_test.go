package tls

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func newECH(t testing.TB, dir string) *ECHKeys {
	t.Helper()
	k, err := LoadECHKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestEncryptedClientHello(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	dir := filepath.Join(t.TempDir(), "ech")
	keys := newECH(t, dir)
	if _, err := keys.ConfigList(); !errors.Is(err, ErrNoECHKey) {
		t.Error(err)
	}
	began := time.Now().Truncate(time.Second)
	if err := keys.Rotate("public.example", 2); err != nil {
		t.Fatal(err)
	}
	first, err := keys.ConfigList()
	if err != nil {
		t.Fatal(err)
	}
	store := storeOf(t, ca.issue(t, nil, nil, "public.example"), ca.issue(t, nil, nil, "secret.example"))
	server := serverConfig(t, ServerOptions{Store: store, ECH: keys})
	client := func(list []byte) *tls.Config {
		return clientConfig(t, ClientOptions{ServerName: "secret.example", Roots: ca.loadRoots(t), ECHConfigList: list})
	}
	ss, cs := mustShake(t, server, client(first))
	if !ss.ECHAccepted || !cs.ECHAccepted || ss.ServerName != "secret.example" {
		t.Errorf("%v %v %q", ss.ECHAccepted, cs.ECHAccepted, ss.ServerName)
	}
	if h := wireHello(t, client(first)); string(h.ServerName) != "public.example" || !h.ECH {
		t.Errorf("on the wire: %q, ECH %v", h.ServerName, h.ECH)
	}
	// Rotation: clients with the record of before are still served, and the new one is published.
	if err := keys.Rotate("public.example", 2); err != nil {
		t.Fatal(err)
	}
	second, _ := keys.ConfigList()
	if bytes.Equal(first, second) {
		t.Error("the configuration did not change")
	}
	for _, list := range [][]byte{first, second} {
		if ss, _ := mustShake(t, server, client(list)); !ss.ECHAccepted {
			t.Error("not accepted")
		}
	}
	if st := keys.Status(); len(st) != 2 || !st[0].Published || st[1].Published || st[0].ConfigID == st[1].ConfigID || st[0].Created.Before(began) || st[0].Created.After(time.Now()) {
		t.Errorf("%+v", st)
	}
	// After another one the first key is gone: the client learns the current configuration.
	if err := keys.Rotate("public.example", 0); err != nil {
		t.Fatal(err)
	}
	_, _, _, err = shake(t, server, client(first))
	var rejected *tls.ECHRejectionError
	if !errors.As(err, &rejected) {
		t.Fatal("a hello to a key that is gone:", err)
	}
	third, _ := keys.ConfigList()
	if !bytes.Equal(rejected.RetryConfigList, third) {
		t.Errorf("retry with %x, want %x", rejected.RetryConfigList, third)
	}
	// Another instance, which shares the folder, and clients without ECH.
	other := serverConfig(t, ServerOptions{Store: store, ECH: newECH(t, dir), ClientAuth: &ClientAuth{Roots: ca.loadRoots(t), Optional: true}})
	if ss, _ := mustShake(t, other, client(rejected.RetryConfigList)); !ss.ECHAccepted {
		t.Error("another instance does not accept")
	}
	if ss, _ := mustShake(t, server, client(nil)); ss.ECHAccepted {
		t.Error("accepted what was not offered")
	}
	record, err := keys.Record("secret.example", 5*time.Minute, "h2", "http/1.1")
	if want := "secret.example. 300 IN HTTPS 1 . alpn=h2,http/1.1 ech=" + base64.StdEncoding.EncodeToString(third); err != nil || record != want {
		t.Errorf("%s, %v, want %s", record, err, want)
	}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if info, _ := f.Info(); info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", f.Name(), info.Mode())
		}
	}
	if len(files) != 2 {
		t.Errorf("%d files", len(files))
	}
}

func TestBadECHFilesLeaveTheOldKeys(t *testing.T) {
	dir := t.TempDir()
	keys := newECH(t, dir)
	if err := keys.Rotate("public.example", 2); err != nil {
		t.Fatal(err)
	}
	list, _ := keys.ConfigList()
	files, _ := keys.files()
	good, _ := os.ReadFile(files[0])
	otherDir := t.TempDir()
	other := newECH(t, otherDir)
	_ = other.Rotate("public.example", 2)
	otherFiles, _ := other.files()
	foreign, _ := os.ReadFile(otherFiles[0])
	i, j := bytes.Index(good, []byte("-----BEGIN ECH")), bytes.Index(foreign, []byte("-----BEGIN ECH"))
	for what, b := range map[string][]byte{
		"empty": nil, "no config": good[:i], "no key": good[i:], "another's config": append(bytes.Clone(good[:i]), foreign[j:]...),
		"key of ECDSA":  append(pemOf(t, tls.Certificate{PrivateKey: newKey(t)}), good[i:]...),
		"cut list":      append(bytes.Clone(good[:i]), "-----BEGIN ECHCONFIG-----\nAAA=\n-----END ECHCONFIG-----\n"...),
		"other version": append(bytes.Clone(good[:i]), "-----BEGIN ECHCONFIG-----\nAAb+CgACAAA=\n-----END ECHCONFIG-----\n"...),
	} {
		writeFile(t, filepath.Join(dir, "zz"+echExtension), b)
		var file *FileError
		if err := keys.Reload(); !errors.As(err, &file) || !errors.Is(err, ErrECHKey) {
			t.Errorf("%s: %v", what, err)
		}
		if now, _ := keys.ConfigList(); !bytes.Equal(now, list) {
			t.Errorf("%s: replaced the keys", what)
		}
	}
	path := filepath.Join(dir, "zz"+echExtension)
	writeFile(t, path, foreign)
	if err := keys.Reload(); err != nil || len(keys.Status()) != 2 {
		t.Error(err)
	}
	_ = os.Chmod(path, 0o604)
	if err := keys.Reload(); err == nil || !strings.Contains(err.Error(), "chmod o= ") {
		t.Error(err)
	}
	for _, name := range []string{"", "a b", "a..b", ".a", "a.", "-a.example", strings.Repeat("a", 64) + ".example", "ü.example", strings.Repeat("a.", 130) + "a"} {
		if err := keys.Rotate(name, 2); !errors.Is(err, ErrECHKey) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func FuzzParseECHKey(f *testing.F) {
	k := newECH(f, f.TempDir())
	_ = k.Rotate("public.example", 2)
	files, _ := k.files()
	good, _ := os.ReadFile(files[0])
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		if key, err := parseECHKey(b); err == nil && (key.key == nil || len(key.config) < 10) {
			t.Fatalf("%+v", key)
		}
	})
}
