// Products of small matrices and the passes of a network of tanh layers over a block of rows. `network.cc` includes this
// once for every processor it is compiled for, each time in a namespace of its own.
//
// Every sum is taken in the order of its terms, whatever the tile or block it falls into: a row's results do not depend
// on the rows around it, nor a gradient on how rows were cut into blocks.

template <typename T>
struct Vector {
  static constexpr int64_t SIZE = 32 / sizeof(T);
  typedef T type __attribute__((vector_size(32)));
  typedef T loose __attribute__((vector_size(32), aligned(alignof(T)), may_alias));  // as it lies in memory
};

// to[r][c] += sum_k from[r * apart + k * step] * with[k][c], for ROWS rows and COLUMNS vectors of columns.
template <typename T, int ROWS, int COLUMNS>
void add_tile(const T* from, int64_t apart, int64_t step, int64_t terms, const T* with, int64_t with_width, T* to,
              int64_t to_width) {
  using V = typename Vector<T>::type;
  using Loose = typename Vector<T>::loose;
  constexpr int64_t SIZE = Vector<T>::SIZE;
  V sums[ROWS][COLUMNS];
  for (int r = 0; r < ROWS; ++r)
    for (int c = 0; c < COLUMNS; ++c) sums[r][c] = *reinterpret_cast<const Loose*>(to + r * to_width + c * SIZE);
  for (int64_t k = 0; k < terms; ++k, with += with_width, from += step) {
    V row[COLUMNS];
    for (int c = 0; c < COLUMNS; ++c) row[c] = *reinterpret_cast<const Loose*>(with + c * SIZE);
    for (int r = 0; r < ROWS; ++r)
      for (int c = 0; c < COLUMNS; ++c) sums[r][c] += from[r * apart] * row[c];
  }
  for (int r = 0; r < ROWS; ++r)
    for (int c = 0; c < COLUMNS; ++c) *reinterpret_cast<Loose*>(to + r * to_width + c * SIZE) = sums[r][c];
}

// The same for any number of columns that vectors fill; two at a time, so that the sums fit the registers.
template <typename T, int ROWS>
void add_rows(const T* from, int64_t apart, int64_t step, int64_t terms, const T* with, T* to, int64_t width) {
  constexpr int64_t SIZE = Vector<T>::SIZE;
  int64_t c = 0;
  for (; c + 2 * SIZE <= width; c += 2 * SIZE)
    add_tile<T, ROWS, 2>(from, apart, step, terms, with + c, width, to + c, width);
  if (c < width) add_tile<T, ROWS, 1>(from, apart, step, terms, with + c, width, to + c, width);
}

// The same for any number of rows.
template <typename T>
void add_product(int64_t rows, const T* from, int64_t apart, int64_t step, int64_t terms, const T* with, T* to,
                 int64_t width) {
  int64_t r = 0;
  for (; r + 6 <= rows; r += 6) add_rows<T, 6>(from + r * apart, apart, step, terms, with, to + r * width, width);
  from += r * apart, to += r * width;
  switch (rows - r) {
    case 1: return add_rows<T, 1>(from, apart, step, terms, with, to, width);
    case 2: return add_rows<T, 2>(from, apart, step, terms, with, to, width);
    case 3: return add_rows<T, 3>(from, apart, step, terms, with, to, width);
    case 4: return add_rows<T, 4>(from, apart, step, terms, with, to, width);
    case 5: return add_rows<T, 5>(from, apart, step, terms, with, to, width);
  }
}

// The rational function of Eigen and XLA, whose error is a few units in the last place.
void apply_tanh(float* values, int64_t size) {
  using V = Vector<float>::type;
  using Loose = Vector<float>::loose;
  const V most = V{} + 7.90531110763549805f;
  for (int64_t i = 0; i < size; i += Vector<float>::SIZE) {
    V x = *reinterpret_cast<const Loose*>(values + i);
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
    *reinterpret_cast<Loose*>(values + i) = x * above / below;
  }
}

void apply_tanh(double* values, int64_t size) {
  for (int64_t i = 0; i < size; ++i) values[i] = std::tanh(values[i]);
}

// Fills layers 1 and above, [rows][width] each, from layer 0 [rows][inputs].
template <typename T>
void forward(const Shape& shape, const T* parameters, int64_t rows, T* const* layers) {
  for (int64_t l = 0; l < shape.depth; ++l) {
    const T* weights = parameters + shape.weights[l];
    const T* biases = parameters + shape.biases[l];
    const int64_t width = shape.widths[l + 1];
    for (int64_t r = 0; r < rows; ++r) std::memcpy(layers[l + 1] + r * width, biases, width * sizeof(T));
    add_product(rows, layers[l], shape.widths[l], 1, shape.sizes[l], weights, layers[l + 1], width);
    if (l + 1 < shape.depth) apply_tanh(layers[l + 1], rows * width);
  }
}

// Adds to `gradient` the derivative of the sum of <logits, errors> over rows; `turned` are the weights with their axes
// exchanged. `errors` is that of the last layer [rows][width] and is written over, as is `spare`, of the same size.
template <typename T>
void backward(const Shape& shape, const T* turned, int64_t rows, T* const* layers, T* errors, T* spare, T* gradient) {
  for (int64_t l = shape.depth; l-- > 0;) {
    const int64_t width = shape.widths[l + 1], before = shape.widths[l];
    add_product(shape.sizes[l], layers[l], 1, before, rows, errors, gradient + shape.weights[l], width);
    T* const bias = gradient + shape.biases[l];
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < width; ++c) bias[c] += errors[r * width + c];
    if (l == 0) return;
    std::memset(spare, 0, rows * before * sizeof(T));
    add_product(rows, errors, width, 1, shape.sizes[l + 1], turned + shape.turned[l], spare, before);
    for (int64_t i = 0; i < rows * before; ++i) spare[i] *= 1 - layers[l][i] * layers[l][i];
    std::swap(errors, spare);
  }
}
