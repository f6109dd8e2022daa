// Products of small matrices and the passes of a network of tanh layers over a block of rows.
// `network_passes.cc` includes this once for every kind of processor it is compiled for, each time
// in a namespace of its own, which says how many BYTES its vectors have.
//
// Every sum is taken in the order of its terms, whatever the tile or block it falls into: a row's
// results do not depend on the rows around it, nor a gradient on how rows were cut into blocks or
// on the size of vectors.

constexpr int SMALLEST = 32;  // bytes that the widths of all layers are multiples of

template <typename T, int WIDE = BYTES>
struct Vector {
  static constexpr int64_t SIZE = WIDE / sizeof(T);
  typedef T type __attribute__((vector_size(WIDE)));
  typedef T loose
      __attribute__((vector_size(WIDE), aligned(alignof(T)), may_alias));  // as it lies in memory
};

// A matrix as it lies in memory: entry [r][k] is at data[r * apart + k * step].
template <typename T>
struct Matrix {
  const T* data;
  int64_t apart, step;
  Matrix from_row(int64_t r) const { return {data + r * apart, apart, step}; }
  Matrix from_column(int64_t k) const { return {data + k * step, apart, step}; }
};

// to[r][c] = begin[r][c] + sum_k left[r][k] * right[k][c], for ROWS rows and COLUMNS vectors of
// columns.
template <typename T, int WIDE, int ROWS, int COLUMNS>
void multiply_tile(const Matrix<T>& begin, const Matrix<T>& left, int64_t terms,
                   const Matrix<T>& right, T* to, int64_t to_apart) {
  using V = typename Vector<T, WIDE>::type;
  using Loose = typename Vector<T, WIDE>::loose;
  constexpr int64_t SIZE = Vector<T, WIDE>::SIZE;
  V sums[ROWS][COLUMNS];
  for (int r = 0; r < ROWS; ++r)
    for (int c = 0; c < COLUMNS; ++c)
      sums[r][c] = *reinterpret_cast<const Loose*>(begin.data + r * begin.apart + c * SIZE);
  const T* from = left.data;
  const T* with = right.data;
  const int64_t apart = left.apart;
  const int64_t step = left.step;
  const int64_t with_apart = right.apart;
  for (int64_t k = 0; k < terms; ++k, from += step, with += with_apart) {
    V row[COLUMNS];
    for (int c = 0; c < COLUMNS; ++c) row[c] = *reinterpret_cast<const Loose*>(with + c * SIZE);
    for (int r = 0; r < ROWS; ++r)
      for (int c = 0; c < COLUMNS; ++c) sums[r][c] += from[r * apart] * row[c];
  }
  for (int r = 0; r < ROWS; ++r)
    for (int c = 0; c < COLUMNS; ++c)
      *reinterpret_cast<Loose*>(to + r * to_apart + c * SIZE) = sums[r][c];
}

// The same for any number of columns that vectors fill; two at a time, so that the sums fit the
// registers.
template <typename T, int ROWS>
void multiply_rows(const Matrix<T>& begin, const Matrix<T>& left, int64_t terms,
                   const Matrix<T>& right, T* to, int64_t width) {
  constexpr int64_t SIZE = Vector<T>::SIZE;
  int64_t c = 0;
  for (; c + 2 * SIZE <= width; c += 2 * SIZE)
    multiply_tile<T, BYTES, ROWS, 2>(begin.from_column(c), left, terms, right.from_column(c),
                                     to + c, width);
  for (; c + SIZE <= width; c += SIZE)
    multiply_tile<T, BYTES, ROWS, 1>(begin.from_column(c), left, terms, right.from_column(c),
                                     to + c, width);
  if (BYTES > SMALLEST && c < width)
    multiply_tile<T, SMALLEST, ROWS, 1>(begin.from_column(c), left, terms, right.from_column(c),
                                        to + c, width);
}

// The same for any number of rows.
template <typename T>
void multiply(int64_t rows, Matrix<T> begin, Matrix<T> left, int64_t terms, const Matrix<T>& right,
              T* to, int64_t width) {
  int64_t r = 0;
  for (; r + 6 <= rows; r += 6, begin = begin.from_row(6), left = left.from_row(6), to += 6 * width)
    multiply_rows<T, 6>(begin, left, terms, right, to, width);
  switch (rows - r) {
    case 1:
      return multiply_rows<T, 1>(begin, left, terms, right, to, width);
    case 2:
      return multiply_rows<T, 2>(begin, left, terms, right, to, width);
    case 3:
      return multiply_rows<T, 3>(begin, left, terms, right, to, width);
    case 4:
      return multiply_rows<T, 4>(begin, left, terms, right, to, width);
    case 5:
      return multiply_rows<T, 5>(begin, left, terms, right, to, width);
    default:
      return;
  }
}

// The inputs of a row that are not zero.
template <typename T>
struct SparseRow {
  const int32_t* places;
  const T* values;
  int64_t size;
  SparseRow(const Sparse<T>& of, int64_t r)
      : places(&of.places[of.ends[r]]),
        values(&of.values[of.ends[r]]),
        size(of.ends[r + 1] - of.ends[r]) {}
};

// The first layer, of COLUMNS vectors: to[c] = begin[c] + sum_k row[k] * right[k][c].
template <typename T, int WIDE, int COLUMNS>
void add_tile(const T* begin, const SparseRow<T>& row, const T* right, T* to, int64_t width) {
  using V = typename Vector<T, WIDE>::type;
  using Loose = typename Vector<T, WIDE>::loose;
  constexpr int64_t SIZE = Vector<T, WIDE>::SIZE;
  V sums[COLUMNS];
  for (int c = 0; c < COLUMNS; ++c) sums[c] = *reinterpret_cast<const Loose*>(begin + c * SIZE);
  for (int64_t i = 0; i < row.size; ++i) {
    const T* const with = right + row.places[i] * width;
    for (int c = 0; c < COLUMNS; ++c)
      sums[c] += row.values[i] * *reinterpret_cast<const Loose*>(with + c * SIZE);
  }
  for (int c = 0; c < COLUMNS; ++c) *reinterpret_cast<Loose*>(to + c * SIZE) = sums[c];
}

// The gradient of its weights, of COLUMNS vectors: to[k][c] += row[k] * errors[c].
template <typename T, int WIDE, int COLUMNS>
void spread_tile(const T* errors, const SparseRow<T>& row, T* to, int64_t width) {
  using V = typename Vector<T, WIDE>::type;
  using Loose = typename Vector<T, WIDE>::loose;
  constexpr int64_t SIZE = Vector<T, WIDE>::SIZE;
  V error[COLUMNS];
  for (int c = 0; c < COLUMNS; ++c) error[c] = *reinterpret_cast<const Loose*>(errors + c * SIZE);
  for (int64_t i = 0; i < row.size; ++i) {
    T* const sums = to + row.places[i] * width;
    for (int c = 0; c < COLUMNS; ++c)
      *reinterpret_cast<Loose*>(sums + c * SIZE) += row.values[i] * error[c];
  }
}

// The first layer: to[r][c] = begin[c] + sum_k inputs[r][k] * right[k][c].
template <typename T>
void multiply_inputs(const Shape& shape, int64_t rows, const Sparse<T>& sparse, const T* inputs,
                     const T* begin, const T* right, T* to) {
  constexpr int64_t SIZE = Vector<T>::SIZE;
  const int64_t size = shape.sizes[0];
  const int64_t width = shape.widths[1];
  if (!sparse.few)
    return multiply(rows, {begin, 0, 1}, {inputs, size, 1}, size, {right, width, 1}, to, width);
  for (int64_t r = 0; r < rows; ++r, to += width) {
    const SparseRow<T> row(sparse, r);
    int64_t c = 0;
    for (; c + 4 * SIZE <= width; c += 4 * SIZE)
      add_tile<T, BYTES, 4>(begin + c, row, right + c, to + c, width);
    for (; c + SIZE <= width; c += SIZE)
      add_tile<T, BYTES, 1>(begin + c, row, right + c, to + c, width);
    if (BYTES > SMALLEST && c < width)
      add_tile<T, SMALLEST, 1>(begin + c, row, right + c, to + c, width);
  }
}

// The gradient of its weights: to[k][c] += sum_r inputs[r][k] * errors[r][c].
template <typename T>
void multiply_errors(const Shape& shape, int64_t rows, const Sparse<T>& sparse, const T* inputs,
                     const T* errors, T* to) {
  constexpr int64_t SIZE = Vector<T>::SIZE;
  const int64_t size = shape.sizes[0];
  const int64_t width = shape.widths[1];
  if (!sparse.few)
    return multiply(size, {to, width, 1}, {inputs, 1, size}, rows, {errors, width, 1}, to, width);
  for (int64_t r = 0; r < rows; ++r, errors += width) {
    const SparseRow<T> row(sparse, r);
    int64_t c = 0;
    for (; c + 4 * SIZE <= width; c += 4 * SIZE)
      spread_tile<T, BYTES, 4>(errors + c, row, to + c, width);
    for (; c + SIZE <= width; c += SIZE) spread_tile<T, BYTES, 1>(errors + c, row, to + c, width);
    if (BYTES > SMALLEST && c < width) spread_tile<T, SMALLEST, 1>(errors + c, row, to + c, width);
  }
}

// The rational function of Eigen and XLA, whose error is a few units in the last place.
template <int WIDE>
void tanh_of_vector(float* values) {
  using V = typename Vector<float, WIDE>::type;
  using Loose = typename Vector<float, WIDE>::loose;
  const V most = V{} + 7.90531110763549805f;
  V x = *reinterpret_cast<const Loose*>(values);
  x = x > most ? most : x;
  x = x < -most ? -most : x;  // what is not a number remains so
  const V y = x * x;
  V above = y * -2.76076847742355e-16f + 2.00018790482477e-13f;
  above = above * y - 8.60467152213735e-11f;
  above = above * y + 5.12229709037114e-08f;
  above = above * y + 1.48572235717979e-05f;
  above = above * y + 6.37261928875436e-04f;
  above = above * y + 4.89352455891786e-03f;
  V below = y * 1.19825839466702e-06f + 1.18534705686654e-04f;
  below = below * y + 2.26843463243900e-03f;
  below = below * y + 4.89352518554385e-03f;
  *reinterpret_cast<Loose*>(values) = x * above / below;
}

void apply_tanh(float* values, int64_t size) {
  int64_t i = 0;
  for (; i + Vector<float>::SIZE <= size; i += Vector<float>::SIZE)
    tanh_of_vector<BYTES>(values + i);
  if (BYTES > SMALLEST && i < size) tanh_of_vector<SMALLEST>(values + i);
}

void apply_tanh(double* values, int64_t size) {
  for (int64_t i = 0; i < size; ++i) values[i] = std::tanh(values[i]);
}

// Fills layers 1 and above, [rows][width] each, from layer 0 [rows][inputs].
template <typename T>
void forward(const Shape& shape, const T* parameters, int64_t rows, const Sparse<T>& sparse,
             T* const* layers) {
  for (int64_t l = 0; l < shape.depth; ++l) {
    const int64_t width = shape.widths[l + 1];
    const T* const biases = parameters + shape.biases[l];
    const T* const weights = parameters + shape.weights[l];
    const Matrix<T> begin{biases, 0, 1};
    const Matrix<T> inputs{layers[l], shape.widths[l], 1};
    if (l == 0)
      multiply_inputs(shape, rows, sparse, layers[0], biases, weights, layers[1]);
    else
      multiply(rows, begin, inputs, shape.sizes[l], {weights, width, 1}, layers[l + 1], width);
    if (l + 1 < shape.depth) apply_tanh(layers[l + 1], rows * width);
  }
}

// Adds to `gradient` the derivative of the sum of <logits, errors> over rows; `turned` are the
// weights with their axes exchanged. `errors` is that of the last layer [rows][width] and is
// written over, as is `spare`, of the same size; `zeros` is as wide as the widest layer.
template <typename T>
void backward(const Shape& shape, const T* turned, int64_t rows, const Sparse<T>& sparse,
              T* const* layers, T* errors, T* spare, const T* zeros, T* gradient) {
  for (int64_t l = shape.depth; l-- > 0;) {
    const int64_t width = shape.widths[l + 1];
    const int64_t before = shape.widths[l];
    T* const weights = gradient + shape.weights[l];
    T* const bias = gradient + shape.biases[l];
    const Matrix<T> begin{weights, width, 1};
    const Matrix<T> inputs{layers[l], 1, before};
    if (l == 0)
      multiply_errors(shape, rows, sparse, layers[0], errors, weights);
    else
      multiply(shape.sizes[l], begin, inputs, rows, {errors, width, 1}, weights, width);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < width; ++c) bias[c] += errors[r * width + c];
    if (l == 0) return;
    const Matrix<T> back{turned + shape.turned[l], before, 1};
    multiply(rows, {zeros, 0, 1}, {errors, width, 1}, shape.sizes[l + 1], back, spare, before);
    for (int64_t i = 0; i < rows * before; ++i) spare[i] *= 1 - layers[l][i] * layers[l][i];
    std::swap(errors, spare);
  }
}

// Fills layers 1 and above of `slopes`, [rows][width] each: the derivatives of `layers` along a
// direction of the parameters.
template <typename T>
void forward_along(const Shape& shape, const T* parameters, const T* direction, int64_t rows,
                   const Sparse<T>& sparse, const T* const* layers, T* const* slopes) {
  for (int64_t l = 0; l < shape.depth; ++l) {
    const int64_t width = shape.widths[l + 1];
    const int64_t before = shape.widths[l];
    const int64_t terms = shape.sizes[l];
    T* const to = slopes[l + 1];
    const T* const biases = direction + shape.biases[l];
    const T* const turns = direction + shape.weights[l];
    if (l == 0)
      multiply_inputs(shape, rows, sparse, layers[0], biases, turns, to);
    else
      multiply(rows, {biases, 0, 1}, {layers[l], before, 1}, terms, {turns, width, 1}, to, width);
    const Matrix<T> weights{parameters + shape.weights[l], width, 1};
    if (l > 0) multiply(rows, {to, width, 1}, {slopes[l], before, 1}, terms, weights, to, width);
    if (l + 1 == shape.depth) return;
    for (int64_t i = 0; i < rows * width; ++i) to[i] *= 1 - layers[l + 1][i] * layers[l + 1][i];
  }
}

// Adds to `gradient` the derivative of the sum of <logits, errors> + <their slopes, bends> over
// rows. `turned` and `turned_direction` are the weights and their directions with axes exchanged;
// the four arrays of errors, of the last layer [rows][width] at first, are written over.
template <typename T>
void backward_along(const Shape& shape, const T* turned, const T* turned_direction, int64_t rows,
                    const Sparse<T>& sparse, const T* const* layers, const T* const* slopes,
                    T* errors, T* spare, T* bends, T* spare_bends, const T* zeros, T* gradient) {
  for (int64_t l = shape.depth; l-- > 0;) {
    const int64_t width = shape.widths[l + 1];
    const int64_t before = shape.widths[l];
    const int64_t terms = shape.sizes[l + 1];
    T* const weights = gradient + shape.weights[l];
    T* const bias = gradient + shape.biases[l];
    const Matrix<T> begin{weights, width, 1};
    const Matrix<T> inputs{layers[l], 1, before};
    if (l == 0)
      multiply_errors(shape, rows, sparse, layers[0], errors, weights);
    else
      multiply(shape.sizes[l], begin, inputs, rows, {errors, width, 1}, weights, width);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < width; ++c) bias[c] += errors[r * width + c];
    if (l == 0) return;
    multiply(shape.sizes[l], {weights, width, 1}, {slopes[l], 1, before}, rows, {bends, width, 1},
             weights, width);
    const Matrix<T> back{turned + shape.turned[l], before, 1};
    const Matrix<T> aside{turned_direction + shape.turned[l], before, 1};
    multiply(rows, {zeros, 0, 1}, {errors, width, 1}, terms, back, spare, before);
    multiply(rows, {spare, before, 1}, {bends, width, 1}, terms, aside, spare, before);
    multiply(rows, {zeros, 0, 1}, {bends, width, 1}, terms, back, spare_bends, before);
    for (int64_t i = 0; i < rows * before; ++i) {
      const T out = layers[l][i];
      const T rise = 1 - out * out;
      spare[i] = spare[i] * rise - 2 * out * slopes[l][i] * spare_bends[i];
      spare_bends[i] *= rise;
    }
    std::swap(errors, spare), std::swap(bends, spare_bends);
  }
}

// Exchanges the axes of a matrix [rows][columns], whose rows are `apart`, a few columns at a time.
template <typename T>
void transpose(const T* from, int64_t rows, int64_t columns, int64_t apart, T* to,
               int64_t to_apart) {
  constexpr int64_t FEW_COLUMNS = 8;
  for (int64_t first = 0; first < columns; first += FEW_COLUMNS) {
    const int64_t last = std::min(columns, first + FEW_COLUMNS);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = first; c < last; ++c) to[c * to_apart + r] = from[r * apart + c];
  }
}

// The sum of squares, in the same order for vectors of any size.
template <typename T>
T squares(int64_t size, const T* values) {
  constexpr int64_t SUMS = 16;
  T sums[SUMS] = {};
  int64_t i = 0;
  for (; i + SUMS <= size; i += SUMS)
    for (int64_t j = 0; j < SUMS; ++j) sums[j] += values[i + j] * values[i + j];
  for (; i < size; ++i) sums[0] += values[i] * values[i];
  T total = 0;
  for (T const sum : sums) total += sum;
  return total;
}

// A step of Adam against `factor` times a gradient; the corrections are those of its moments.
template <typename T>
void descend(int64_t size, const T* gradient, T factor, T rate, T first_correction,
             T second_correction, T* __restrict parameters, T* __restrict first,
             T* __restrict second) {
  constexpr T FIRST_DECAY = 0.9;
  constexpr T SECOND_DECAY = 0.999;
  constexpr T EPSILON = 1e-5;
  for (int64_t i = 0; i < size; ++i) {
    const T slope = factor * gradient[i];
    first[i] = FIRST_DECAY * first[i] + (1 - FIRST_DECAY) * slope;
    second[i] = SECOND_DECAY * second[i] + (1 - SECOND_DECAY) * slope * slope;
    const T root = std::sqrt(second[i] * second_correction);
    parameters[i] -= rate * (first[i] * first_correction) / (root + EPSILON);
  }
}

template <typename T>
constexpr Passes<T> all_passes{forward<T>,   backward<T>, forward_along<T>, backward_along<T>,
                               transpose<T>, squares<T>,  descend<T>};
