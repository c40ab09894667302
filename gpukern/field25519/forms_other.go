//go:build !amd64 || purego

package field25519

var forms = []*Form{plainForm}
