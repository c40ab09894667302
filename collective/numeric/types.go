// Package numeric holds the element types of collective operations and their reductions on the CPU: sum, product, minimum and
// maximum of two vectors, and the division of an average. Floating point of 16 bits is computed in float32 and rounded to nearest,
// ties to even, after each operation. Integers wrap around.
package numeric

import (
	"fmt"
	"unsafe"
)

// Type is the type of the elements of a vector. The values are part of the wire format.
type Type uint8

// The types.
const (
	Int8 Type = iota + 1
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float16  // IEEE 754 binary16
	BFloat16 // the upper half of a binary32
	Float32
	Float64
)

// Half is an IEEE 754 binary16, and Brain a bfloat16: their bits.
type (
	Half  uint16
	Brain uint16
)

// Element is a Go type that vectors have.
type Element interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | Half | Brain | float32 | float64
}

var names = [...]string{
	Int8: "int8", Int16: "int16", Int32: "int32", Int64: "int64", Uint8: "uint8", Uint16: "uint16", Uint32: "uint32", Uint64: "uint64",
	Float16: "float16", BFloat16: "bfloat16", Float32: "float32", Float64: "float64",
}

var sizes = [...]int{
	Int8: 1, Int16: 2, Int32: 4, Int64: 8, Uint8: 1, Uint16: 2, Uint32: 4, Uint64: 8, Float16: 2, BFloat16: 2, Float32: 4, Float64: 8,
}

// Types lists all types.
var Types = []Type{Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, Float16, BFloat16, Float32, Float64}

// Valid reports whether the type exists.
func (t Type) Valid() bool { return t >= Int8 && t <= Float64 }

// String returns the name of the type.
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("type %d", uint8(t))
	}
	return names[t]
}

// Size returns the bytes of an element.
func (t Type) Size() int { return sizes[t] }

// ParseType returns the type of a name.
func ParseType(name string) (Type, error) {
	for _, t := range Types {
		if names[t] == name {
			return t, nil
		}
	}
	return 0, fmt.Errorf("type %q, want one of %v", name, Types)
}

// TypeOf returns the type of T.
func TypeOf[T Element]() Type {
	switch any(*new(T)).(type) {
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case Half:
		return Float16
	case Brain:
		return BFloat16
	case float32:
		return Float32
	}
	return Float64
}

// Bytes returns the memory of a vector as bytes, in the order of this machine.
func Bytes[T Element](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

// view is Bytes in the other direction. The memory must be aligned.
func view[T Element](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(*new(T))))
}

// Op is a reduction. The values are part of the wire format.
type Op uint8

// The reductions. Of floating point, Min and Max are NaN if either operand is. Avg is the sum divided by the number of ranks; of integers
// it is truncated toward zero.
const (
	Sum Op = iota + 1
	Prod
	Min
	Max
	Avg
)

// Ops lists all reductions.
var Ops = []Op{Sum, Prod, Min, Max, Avg}

var opNames = [...]string{Sum: "sum", Prod: "prod", Min: "min", Max: "max", Avg: "avg"}

// Valid reports whether the reduction exists.
func (o Op) Valid() bool { return o >= Sum && o <= Avg }

// String returns the name of the reduction.
func (o Op) String() string {
	if !o.Valid() {
		return fmt.Sprintf("reduction %d", uint8(o))
	}
	return opNames[o]
}

// ParseOp returns the reduction of a name.
func ParseOp(name string) (Op, error) {
	for _, o := range Ops {
		if opNames[o] == name {
			return o, nil
		}
	}
	return 0, fmt.Errorf("reduction %q, want one of %v", name, Ops)
}
