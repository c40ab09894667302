package config

import (
	"errors"

	"github.com/millrace/millrace/internal/regfile"
	"github.com/millrace/millrace/internal/secretfile"
	"github.com/millrace/millrace/l7/auth"
	"github.com/millrace/millrace/l7/files"
	"github.com/millrace/millrace/tls"
)

// Bounds of files, bytes.
const (
	maxJWKS = 1 << 20
	maxPage = 1 << 20
	maxOCSP = 64 << 10
)

// Page returns the content of a file of error_pages. ReadLists has read it.
func (c *Config) Page(file string) []byte { return c.pages[file] }

// Users returns the users of a file that the configuration names. ReadLists has read them.
func (c *Config) Users(file string) *auth.Users { return c.users[file] }

// Keys returns the keys of a file that the configuration names. ReadLists has read them.
func (c *Config) Keys(file string) []auth.Key { return c.jwks[file] }

func readUsers(path string) (*auth.Users, error) {
	f, err := regfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return auth.ReadUsers(f)
}

func readJWKS(path string) ([]auth.Key, error) {
	text, err := regfile.Read(path, maxJWKS)
	if err != nil {
		return nil, err
	}
	return auth.ParseJWKS(text)
}

// lineProblems appends the errors of lines of a file of users, and reports whether there are any. They show nothing of the lines.
func (c *Config) lineProblems(list *[]Problem, f *namedFile, err error) (some bool) {
	for _, one := range joined(err) {
		var e *auth.LineError
		if errors.As(one, &e) {
			*list, some = append(*list, Problem{File: c.Beside(f.name), Line: e.Line, Column: 1, Message: e.Err, Hint: e.Hint}), true
		}
	}
	return some
}

// joined returns the errors that errors.Join has joined.
func joined(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	return []error{err}
}

// namedFile is a file of certificates or of what goes with them, and where the configuration names it.
type namedFile struct {
	kind     fileKind
	name     string
	key      string  // of a certificate: the file of its key
	fallback bool    // it is served where no name matches, so that it needs none itself
	ofClient bool    // it is shown to backends: see tls.KeyPair
	at       Problem // without a message
}

// noteFiles keeps where files are named, for readFiles.
func (d *checker) noteFiles(c *Config, certificates []certificatePlace, files []filePlace) {
	for _, p := range certificates {
		c.named = append(c.named, namedFile{fileCertificate, p.value.Cert, p.value.Key, p.value.Default, p.ofClient, d.Place(p.node.Line, p.node.Column)})
	}
	for _, p := range files {
		c.named = append(c.named, namedFile{kind: p.kind, name: p.name, at: d.Place(p.node.Line, p.node.Column)})
	}
}

// readFiles reads the files of certificates as those who use them do, and returns why one cannot be used.
func (c *Config) readFiles() (list []Problem) {
	type file struct {
		kind      fileKind
		name, key string
		ofClient  bool
	}
	read := map[file]error{}
	c.users, c.jwks, c.pages = map[string]*auth.Users{}, map[string][]auth.Key{}, map[string][]byte{}
	for _, f := range c.named {
		id := file{f.kind, f.name, f.key, f.ofClient}
		err, known := read[id]
		if !known {
			err = c.readFile(&f)
			read[id] = err
		}
		if err == nil {
			continue
		}
		if f.kind == fileUsers && c.lineProblems(&list, &f, err) {
			continue
		}
		p := f.at
		p.Message = map[fileKind]string{
			fileCertificate: "the certificate", fileRoots: "the file of authorities", fileCRL: "the revocation list", fileTickets: "the file of ticket keys", fileFolder: "the folder", fileSecret: "the key", fileToken: "the token",
			fileOCSP: "the OCSP response", fileUsers: "the file of users", fileJWKS: "the file of keys", filePage: "the page",
		}[f.kind] + " cannot be used: " + err.Error()
		list = append(list, p)
	}
	return list
}

func (c *Config) readFile(f *namedFile) error {
	path := c.Beside(f.name)
	switch f.kind {
	case fileRoots:
		_, err := tls.LoadRoots(path)
		return err
	case fileCRL:
		_, err := tls.LoadRevocation(tls.RevocationOptions{Files: []string{path}})
		return err
	case fileSecret:
		_, err := secretfile.Read(path)
		return err
	case fileToken:
		token, err := readToken(path)
		c.adminToken = token
		return err
	case fileFolder:
		_, err := files.Open(files.Options{Root: path})
		return err
	case fileOCSP:
		_, err := regfile.Read(path, maxOCSP)
		return err
	case fileTickets:
		_, err := tls.LoadTicketKeys(tls.TicketPeriod, path)
		return err
	case fileUsers:
		users, err := readUsers(path)
		c.users[f.name] = users
		return err
	case filePage:
		text, err := regfile.Read(path, maxPage)
		c.pages[f.name] = text
		return err
	case fileJWKS:
		keys, err := readJWKS(path)
		c.jwks[f.name] = keys
		return err
	}
	pair := c.KeyPair(Certificate{Cert: f.name, Key: f.key, Default: f.fallback})
	pair.Client = f.ofClient
	return new(tls.Store).Load(pair)
}

// KeyPair returns the files of a certificate by their paths.
func (c *Config) KeyPair(cert Certificate) tls.KeyPair {
	p := tls.KeyPair{CertFile: c.Beside(cert.Cert), Default: cert.Default}
	if cert.Key != "" {
		p.KeyFile = c.Beside(cert.Key)
	}
	return p
}
