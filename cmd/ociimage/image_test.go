package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stage makes a folder as `make dist` does, with the packages' own file.
func stage(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	file, err := os.ReadFile("../../deploy/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"usr/bin/millrace": program, gatewayFile: string(file), "usr/share/doc/millrace/copyright": "licence"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// build runs the command.
func build(t *testing.T) (file string, content map[string][]byte) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "image.tar")
	err := run([]string{"-version", "1.2.3", "-revision", "abc", "-epoch", "1700000000", "-out", file, "amd64=" + stage(t, "program a"), "arm64=" + stage(t, "program b")})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, untar(t, b, nil)
}

// untar returns the files of a tar file, and calls each for their headers.
func untar(t *testing.T, b []byte, each func(*tar.Header)) map[string][]byte {
	t.Helper()
	content := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return content
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s is of %v", h.Name, h.ModTime)
		}
		if each != nil {
			each(h)
		}
		if content[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// blobAt returns a blob, whose digest and size must hold.
func blobAt(t *testing.T, content map[string][]byte, d descriptor) []byte {
	t.Helper()
	b, ok := content["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
	if !ok || digest(b) != d.Digest || int64(len(b)) != d.Size {
		t.Fatalf("blob %s: there %v, %d bytes of %d", d.Digest, ok, len(b), d.Size)
	}
	return b
}

func decode[T any](t *testing.T, b []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestImage(t *testing.T) {
	file, content := build(t)
	if string(content["oci-layout"]) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout: %s", content["oci-layout"])
	}
	top := decode[index](t, content["index.json"])
	all := decode[index](t, blobAt(t, content, top.Manifests[0]))
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" || len(all.Manifests) != 2 {
		t.Fatalf("index: %+v, %+v", top, all)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		d := all.Manifests[i]
		if d.Platform == nil || d.Platform.Architecture != arch || d.Platform.OS != "linux" {
			t.Errorf("platform: %+v", d.Platform)
		}
		m := decode[manifest](t, blobAt(t, content, d))
		c := decode[configuration](t, blobAt(t, content, m.Config))
		if c.Architecture != arch || c.Config.User != "65532:65532" || c.Config.Labels["org.opencontainers.image.revision"] != "abc" || c.Config.StopSignal != "SIGTERM" {
			t.Errorf("configuration: %+v", c)
		}
		z, err := gzip.NewReader(bytes.NewReader(blobAt(t, content, m.Layers[0])))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(z)
		if err != nil || c.RootFS.DiffIDs[0] != digest(b) {
			t.Errorf("layer: %v, diff id %s", err, c.RootFS.DiffIDs[0])
		}
		if i == 0 {
			checkLayer(t, b)
		}
	}
	again, _ := build(t)
	first, _ := os.ReadFile(file)
	second, _ := os.ReadFile(again)
	if !bytes.Equal(first, second) {
		t.Error("the same input gives other bytes")
	}
}

// checkLayer looks at what a container of amd64 has.
func checkLayer(t *testing.T, b []byte) {
	t.Helper()
	modes := map[string]int64{}
	owners := map[string]int{}
	content := untar(t, b, func(h *tar.Header) {
		if _, twice := modes[h.Name]; twice {
			t.Errorf("%s is there twice", h.Name)
		}
		if dir := filepath.Dir(strings.TrimSuffix(h.Name, "/")); dir != "." {
			if _, ok := modes[dir+"/"]; !ok {
				t.Errorf("%s is before its folder", h.Name)
			}
		}
		modes[h.Name], owners[h.Name] = h.Mode, h.Uid
	})
	if string(content["usr/bin/millrace"]) != "program a" || modes["usr/bin/millrace"] != 0o755 || modes["tmp/"] != 0o1777 || owners["run/millrace/"] != 65532 || owners["var/lib/millrace/"] != 65532 || modes["var/lib/millrace/"] != 0o700 {
		t.Errorf("files: %v, owners %v", modes, owners)
	}
	if text := string(content[gatewayFile]); !strings.Contains(text, "address: 0.0.0.0:8080") || strings.Contains(text, "this machine\n# alone") {
		t.Errorf("%s:\n%s", gatewayFile, text)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content[certificatesFile]) || strings.Count(string(content[certificatesFile]), "BEGIN CERTIFICATE") < 80 {
		t.Error("the certificates are not those of a browser")
	}
}

// TestImageByOthers has skopeo and umoci read the image.
func TestImageByOthers(t *testing.T) {
	file, _ := build(t)
	for _, name := range []string{"skopeo", "umoci"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s: apt-get install %s", name, name)
		}
	}
	dir := filepath.Join(t.TempDir(), "layout")
	for _, args := range [][]string{
		{"skopeo", "--override-arch", "amd64", "copy", "--quiet", "--insecure-policy", "oci-archive:" + file + ":1.2.3", "oci:" + dir + ":1.2.3"},
		{"umoci", "unpack", "--rootless", "--image", dir + ":1.2.3", dir + "/bundle"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "bundle/rootfs/usr/bin/millrace")); err != nil || string(b) != "program a" {
		t.Errorf("unpacked: %q, %v", b, err)
	}
}

func TestRefusedInput(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image.tar")
	for want, args := range map[string][]string{
		"required":               {"-version", "1", "-out", out},
		"ARCH=FOLDER":            {"-version", "1", "-out", out, "amd64"},
		"no such file":           {"-version", "1", "-out", out, "amd64=" + t.TempDir()},
		"provided but not defin": {"-nothing"},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	if _, err := published([]byte("listeners: []")); err == nil {
		t.Error("a file without the address is published")
	}
}

// An image of another program has that in place of millrace, and runs it.
func TestAnImageOfAnotherProgram(t *testing.T) {
	dir := stage(t, "")
	if err := os.Rename(filepath.Join(dir, "usr/bin/millrace"), filepath.Join(dir, "usr/bin/millrace-waf")); err != nil {
		t.Fatal(err)
	}
	im := image{program: "millrace-waf", version: "1"}
	if err := im.add("amd64", dir); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, b := range im.blobs {
		found = found || bytes.Contains(b, []byte(`"Entrypoint":["/usr/bin/millrace-waf"]`)) && bytes.Contains(b, []byte(`image.title":"millrace-waf"`))
	}
	if !found {
		t.Error("no configuration of the image runs the program")
	}
}
