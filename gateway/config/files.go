package config

import "github.com/millrace/millrace/tls"

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
		p := f.at
		p.Message = map[fileKind]string{
			fileCertificate: "the certificate", fileRoots: "the file of authorities", fileCRL: "the revocation list", fileTickets: "the file of ticket keys",
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
	case fileTickets:
		_, err := tls.LoadTicketKeys(tls.TicketPeriod, path)
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
