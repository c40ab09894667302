package numeric

// number is an element that the processor computes with.
type number interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64
}

// Reduce combines src into dst, element by element: dst = dst op src. Both have the same length, a multiple of the type's size, and are
// aligned to it. Avg adds: Divide follows the last Reduce.
func Reduce(dst, src []byte, t Type, op Op) {
	switch t {
	case Int8:
		reduce(view[int8](dst), view[int8](src), op)
	case Int16:
		reduce(view[int16](dst), view[int16](src), op)
	case Int32:
		reduce(view[int32](dst), view[int32](src), op)
	case Int64:
		reduce(view[int64](dst), view[int64](src), op)
	case Uint8:
		reduce(dst, src, op)
	case Uint16:
		reduce(view[uint16](dst), view[uint16](src), op)
	case Uint32:
		reduce(view[uint32](dst), view[uint32](src), op)
	case Uint64:
		reduce(view[uint64](dst), view[uint64](src), op)
	case Float16:
		reduce16(view[Half](dst), view[Half](src), op)
	case BFloat16:
		reduce16(view[Brain](dst), view[Brain](src), op)
	case Float32:
		reduce(view[float32](dst), view[float32](src), op)
	case Float64:
		reduce(view[float64](dst), view[float64](src), op)
	}
}

func reduce[T number](dst, src []T, op Op) {
	switch op {
	case Sum, Avg:
		add(dst, src)
	case Prod:
		for i, s := range src[:len(dst)] {
			dst[i] *= s
		}
	case Min:
		for i, s := range src[:len(dst)] {
			dst[i] = min(dst[i], s)
		}
	case Max:
		for i, s := range src[:len(dst)] {
			dst[i] = max(dst[i], s)
		}
	}
}

// add is unrolled: the compiler emits one check of bounds for eight elements.
func add[T number](dst, src []T) {
	for len(dst) >= 8 {
		d, s := (*[8]T)(dst), (*[8]T)(src)
		d[0] += s[0]
		d[1] += s[1]
		d[2] += s[2]
		d[3] += s[3]
		d[4] += s[4]
		d[5] += s[5]
		d[6] += s[6]
		d[7] += s[7]
		dst, src = dst[8:], src[8:]
	}
	for i, s := range src[:len(dst)] {
		dst[i] += s
	}
}

// half is a floating point type of 16 bits.
type half interface {
	Half | Brain
	Float32() float32
}

// round returns the value of T nearest to f.
func round[T half](f float32) T {
	if _, ok := any(T(0)).(Half); ok {
		return T(HalfOf(f))
	}
	return T(BrainOf(f))
}

func reduce16[T half](dst, src []T, op Op) {
	for i, s := range src[:len(dst)] {
		a, b := dst[i].Float32(), s.Float32()
		switch op {
		case Sum, Avg:
			a += b
		case Prod:
			a *= b
		case Min:
			a = min(a, b)
		case Max:
			a = max(a, b)
		}
		dst[i] = round[T](a)
	}
}

// Divide divides each element by n, for Avg.
func Divide(v []byte, t Type, n int) {
	switch t {
	case Int8: // n may exceed the type
		divideInteger(view[int8](v), n)
	case Int16:
		divideInteger(view[int16](v), n)
	case Int32:
		divideInteger(view[int32](v), n)
	case Int64:
		divideInteger(view[int64](v), n)
	case Uint8:
		divideInteger(v, n)
	case Uint16:
		divideInteger(view[uint16](v), n)
	case Uint32:
		divideInteger(view[uint32](v), n)
	case Uint64:
		w := view[uint64](v)
		for i := range w {
			w[i] /= uint64(n)
		}
	case Float16:
		divide16(view[Half](v), n)
	case BFloat16:
		divide16(view[Brain](v), n)
	case Float32:
		w := view[float32](v)
		for i := range w {
			w[i] /= float32(n)
		}
	case Float64:
		w := view[float64](v)
		for i := range w {
			w[i] /= float64(n)
		}
	}
}

func divideInteger[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](v []T, n int) {
	for i := range v {
		v[i] = T(int64(v[i]) / int64(n))
	}
}

func divide16[T half](v []T, n int) {
	for i := range v {
		v[i] = round[T](v[i].Float32() / float32(n))
	}
}
