package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Media types of the OCI image specification 1.1.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor names a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type index struct {
	Schema    int          `json:"schemaVersion"`
	MediaType string       `json:"mediaType"`
	Manifests []descriptor `json:"manifests"`
}

type manifest struct {
	Schema    int          `json:"schemaVersion"`
	MediaType string       `json:"mediaType"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
}

// configuration is the configuration of an image.
type configuration struct {
	Created      time.Time `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       execution `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
	History      []history `json:"history"`
}

type execution struct {
	User         string              `json:"User"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts"`
	Env          []string            `json:"Env"`
	Entrypoint   []string            `json:"Entrypoint"`
	Cmd          []string            `json:"Cmd"`
	WorkingDir   string              `json:"WorkingDir"`
	Labels       map[string]string   `json:"Labels"`
	StopSignal   string              `json:"StopSignal"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"` // digests of the layers before compression
}

type history struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// image is an image of several architectures.
type image struct {
	program, version, revision string
	created                    time.Time
	blobs                      map[string][]byte // by digest
	manifests                  []descriptor
}

// add adds an architecture, whose files are in a folder as `make dist` stages them.
func (im *image) add(arch, stage string) error {
	l, err := newLayer(stage, im.program, im.created)
	if err != nil {
		return err
	}
	c := configuration{
		Created: im.created, Architecture: arch, OS: "linux",
		Config: execution{
			User: userID + ":" + userID, ExposedPorts: map[string]struct{}{"8080/tcp": {}}, WorkingDir: "/", StopSignal: "SIGTERM",
			Env:        []string{"PATH=/usr/bin", "SSL_CERT_FILE=/" + certificatesFile},
			Entrypoint: []string{"/usr/bin/" + im.program}, Cmd: []string{"gateway", "-c", "/" + gatewayFile}, Labels: im.labels(),
		},
		RootFS:  rootFS{Type: "layers", DiffIDs: []string{l.diffID}},
		History: []history{{im.created, "make dist"}},
	}
	config, err := im.blobOf(typeConfig, c)
	if err != nil {
		return err
	}
	m, err := im.blobOf(typeManifest, manifest{2, typeManifest, config, []descriptor{im.blob(typeLayer, l.compressed)}})
	if err != nil {
		return err
	}
	m.Platform = &platform{arch, "linux"}
	im.manifests = append(im.manifests, m)
	return nil
}

// labels describe the image, by the names of the OCI annotations.
func (im *image) labels() map[string]string {
	l := map[string]string{
		"org.opencontainers.image.title": im.program, "org.opencontainers.image.version": im.version, "org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.description": "A gateway for L4 and L7",
	}
	if im.revision != "" {
		l["org.opencontainers.image.revision"] = im.revision
	}
	return l
}

// blob stores bytes.
func (im *image) blob(mediaType string, b []byte) descriptor {
	if im.blobs == nil {
		im.blobs = map[string][]byte{}
	}
	d := descriptor{MediaType: mediaType, Digest: digest(b), Size: int64(len(b))}
	im.blobs[d.Digest] = b
	return d
}

// blobOf stores a value as JSON.
func (im *image) blobOf(mediaType string, v any) (descriptor, error) {
	b, err := json.Marshal(v)
	return im.blob(mediaType, b), err
}

// digest returns the digest of bytes, as descriptors have it.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// write writes the layout. index.json names one index with all architectures: programs that load such a file take the one of their own.
func (im *image) write(w io.Writer) error {
	all, err := im.blobOf(typeIndex, index{2, typeIndex, im.manifests})
	if err != nil {
		return err
	}
	all.Annotations = map[string]string{"org.opencontainers.image.ref.name": im.version}
	top, err := json.Marshal(index{2, typeIndex, []descriptor{all}})
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "index.json": top}
	for d, b := range im.blobs {
		files["blobs/"+strings.Replace(d, ":", "/", 1)] = b
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, dir := range []string{"blobs/", "blobs/sha256/"} {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: im.created}); err != nil {
			return err
		}
	}
	for _, name := range names {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name])), ModTime: im.created}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(files[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return t.Close()
}
