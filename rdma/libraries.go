package rdma

import (
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/millrace/millrace/internal/packed"
)

//go:embed verbs/build
var built embed.FS

// ErrNoLibrary reports a build without the libraries for unmodified programs.
var ErrNoLibrary = errors.New("rdma: this build has no libibverbs: a C compiler was missing (install gcc or clang, and run `make build`)")

// libraries lists the built files, and the names that programs load them by: with a version, or by dlopen(3) without one.
var libraries = [][]string{
	{"libibverbs.so.1", "libibverbs.so"},
	{"librdmacm.so.1", "librdmacm.so"},
	{"libmlx5.so.1", "libmlx5.so"},
	{"libefa.so.1", "libefa.so"},
}

// Libraries returns the libraries that unmodified programs load in the place of the system's, by file name, and a name for their
// folder that changes with them. The folder belongs in LD_LIBRARY_PATH. rdma/verbs and rdma/rdmacm have their sources: libibverbs and
// librdmacm, which package rdma/program serves, and two of vendors, whose functions fail, because programs link them.
func Libraries() (folder string, files map[string][]byte, err error) {
	files = map[string][]byte{}
	sum := sha256.New()
	for _, names := range libraries {
		b, err := packed.Read(built, "verbs/build/"+names[0])
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil, ErrNoLibrary
		}
		if err != nil {
			return "", nil, err
		}
		sum.Write(b)
		for _, name := range names {
			files[name] = b
		}
	}
	return fmt.Sprintf("verbs-%x", sum.Sum(nil)[:16]), files, nil
}
