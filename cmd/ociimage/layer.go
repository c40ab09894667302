package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// Files of the image.
const (
	gatewayFile      = "etc/millrace/gateway.yaml"
	certificatesFile = "etc/ssl/certs/ca-certificates.crt"
)

// userID is of the user that the gateway runs as, and of its group.
const userID = "65532"

// layer is the file system of an image.
type layer struct {
	compressed []byte
	diffID     string
}

// newLayer makes the layer of the files that are staged in a folder.
func newLayer(stage, name string, at time.Time) (*layer, error) {
	program, err1 := os.ReadFile(filepath.Join(stage, "usr/bin", name))
	file, err2 := os.ReadFile(filepath.Join(stage, gatewayFile))
	licence, err3 := os.ReadFile(filepath.Join(stage, "usr/share/doc/millrace/copyright"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	file, err := published(file)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := treeWriter{tar.NewWriter(&b), at, map[string]bool{}}
	for _, f := range []struct {
		name string
		mode int64
		text []byte
	}{
		{certificatesFile, 0o644, certificates()},
		{"etc/group", 0o644, []byte("root:x:0:\nmillrace:x:" + userID + ":\n")},
		{gatewayFile, 0o644, file},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/\nmillrace:x:" + userID + ":" + userID + ":millrace:/:/\n")},
		{"usr/bin/" + name, 0o755, program},
		{"usr/share/doc/millrace/copyright", 0o644, licence},
	} {
		if err := w.file(f.name, f.mode, f.text); err != nil {
			return nil, err
		}
	}
	owner, err := strconv.Atoi(userID)
	if err != nil {
		return nil, err
	}
	for _, dir := range []struct {
		name  string
		mode  int64
		owner int
	}{{"run/millrace", 0o755, owner}, {"tmp", 0o1777, 0}, {"var/lib/millrace", 0o700, owner}} {
		if err := w.folder(dir.name, dir.mode, dir.owner); err != nil {
			return nil, err
		}
	}
	if err := w.t.Close(); err != nil {
		return nil, err
	}
	l := &layer{diffID: digest(b.Bytes())}
	var z bytes.Buffer
	zip, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = zip.Write(b.Bytes())
	if err := errors.Join(err, zip.Close()); err != nil {
		return nil, err
	}
	l.compressed = z.Bytes()
	return l, nil
}

// published has the file of the packages answer on all addresses of IPv4: the loopback of a container is its own.
func published(file []byte) ([]byte, error) {
	const local, all = "address: 127.0.0.1:8080", "address: 0.0.0.0:8080"
	if strings.Count(string(file), local) != 1 {
		return nil, fmt.Errorf("%s does not have %q once", gatewayFile, local)
	}
	text := strings.Replace(string(file), local, all, 1)
	return []byte(strings.Replace(text, "answers on this machine\n# alone", "answers at port 8080", 1)), nil
}

// certificates are the roots of Mozilla's list, without those that hold under conditions which a file of certificates cannot express.
func certificates() []byte {
	var b bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate}))
		}
	}
	return b.Bytes()
}

// treeWriter writes files with the folders above them.
type treeWriter struct {
	t    *tar.Writer
	at   time.Time
	made map[string]bool
}

// parents writes the folders above a path.
func (w treeWriter) parents(name string) error {
	for i := range name {
		if name[i] == '/' && !w.made[name[:i]] {
			if err := w.folder(name[:i], 0o755, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w treeWriter) folder(name string, mode int64, owner int) error {
	if err := w.parents(name); err != nil {
		return err
	}
	w.made[name] = true
	return w.t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner, ModTime: w.at})
}

func (w treeWriter) file(name string, mode int64, text []byte) error {
	if err := w.parents(name); err != nil {
		return err
	}
	if err := w.t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(text)), ModTime: w.at}); err != nil {
		return err
	}
	_, err := w.t.Write(text)
	return err
}
