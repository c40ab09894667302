package tls

import (
	"context"
	"crypto/tls"
	"reflect"
	"unsafe"
)

// This file sets the fields of crypto/tls's structs that its methods read and that it does not export. Without them
// ConnectionState.ExportKeyingMaterial would call a nil function, and ClientHelloInfo.Context return nil, where the engine makes
// these structs. fieldsKnown is false where a release of Go has other fields: then crypto/tls makes every handshake, and
// TestTheFieldsOfCryptoTLSAreKnown fails.

type exportFunc = func(label string, context []byte, length int) ([]byte, error)

var (
	exportOffset, exportKnown   = fieldOffset[tls.ConnectionState, exportFunc]("ekm")
	contextOffset, contextKnown = fieldOffset[tls.ClientHelloInfo, context.Context]("ctx")
	configOffset, configKnown   = fieldOffset[tls.ClientHelloInfo, *tls.Config]("config")
	fieldsKnown                 = exportKnown && contextKnown && configKnown
)

// fieldOffset returns where S has a field, and whether its type is F.
func fieldOffset[S, F any](name string) (uintptr, bool) {
	f, ok := reflect.TypeFor[S]().FieldByName(name)
	return f.Offset, ok && f.Type == reflect.TypeFor[F]()
}

// field returns a field of type F of a struct.
func field[F, S any](s *S, offset uintptr) *F { return (*F)(unsafe.Add(unsafe.Pointer(s), offset)) }

// setExport sets what ExportKeyingMaterial calls.
func setExport(cs *tls.ConnectionState, export exportFunc) {
	*field[exportFunc](cs, exportOffset) = export
}

// setHello sets what Context returns, and the config that SupportsCertificate reads.
func setHello(info *tls.ClientHelloInfo, ctx context.Context, config *tls.Config) {
	*field[context.Context](info, contextOffset) = ctx
	*field[*tls.Config](info, configOffset) = config
}
