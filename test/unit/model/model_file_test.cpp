// Model files that make what they should.
#include "ringtrain/model/model_file.hpp"

#include "model/model_file/operations.hpp"
#include "model/model_file/recipe_lines.hpp"
#include "support/catch.hpp"
#include "support/model_files.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

bool same(const Initialiser& a, const Initialiser& b) {
  return a.kind == b.kind && a.value == b.value;
}

// What a graph's hash does not tell.
void check_first_values(const Graph& graph, const Graph& expected) {
  REQUIRE(graph.parameters.size() == expected.parameters.size());
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const Parameter &a = graph.parameters[p], &b = expected.parameters[p];
    CAPTURE(b.name);
    CHECK((a.name == b.name && a.dims == b.dims && a.role == b.role));
    CHECK(a.decay == b.decay);
    CHECK(same(a.initial, b.initial));
  }
}

const ImageInput& image_of(const Graph& graph) {
  return std::get<ImageInput>(graph.nodes[0].operation);
}

}  // namespace

TEST_CASE("model file: its classes can be written over, and nothing else changes") {
  const std::string text = "# of mine classes=1\n\nmodel m classes=10 # classes=2\ninput size=8\n";

  CHECK(with_classes(text, 3) ==
        "# of mine classes=1\n\nmodel m classes=3 # classes=2\ninput size=8\n");
  CHECK(with_classes("model m classes=10", 1000) == "model m classes=1000");
  CHECK(with_classes("\xEF\xBB\xBF# of mine\nmodel m classes=10", 2) ==
        "# of mine\nmodel m classes=2");
  CHECK(with_classes(model_text("resnet18"), 1000) == model_text("resnet18"));
}

TEST_CASE("model file: checkpoints hold its words, and what is said of the network above them") {
  CHECK(canonical("\xEF\xBB\xBF# Of mine. \r\n\n \tmodel  m\tclasses=10 # ten\r\n# layers\n\ninput "
                  "size=8") == "# Of mine.\nmodel m classes=10\ninput size=8\n");
  for (const std::string& name : model_names()) {
    const std::string text = canonical(model_text(name));
    CAPTURE(name);
    CHECK(text == canonical(text));
    CHECK(recipe_lines(text) == recipe_lines(model_text(name)));
    CHECK(read_model(text).graph.structure_hash() == make_model(name).graph.structure_hash());
  }
}

TEST_CASE("model file: what it says of training is its head and two kinds of lines") {
  CHECK(recipe_lines("# Of mine.\n\nmodel m classes=2\nrecipe lr=1\n# layers\ninput size=8\n"
                     "images pad=4 # more\n") == "# Of mine.\nrecipe lr=1\nimages pad=4 # more\n");
}

TEST_CASE("model file: every operation with every option is what the builder makes of it") {
  GraphBuilder g;
  compute::TensorId x = g.input(9, 7, 3, {.mean = {0.25f, 0.5f, 1}, .deviation = {1, 2, 3}});
  x = g.convolution("c", x,
                    {.channels = 6,
                     .height = 1,
                     .width = 3,
                     .stride = 2,
                     .groups = 3,
                     .padding = Padding::valid,
                     .initial = {Initialiser::Kind::uniform, 0.25},
                     .bias = -0.5,
                     .decay = false});
  const compute::TensorId pooled = g.max_pool(x, {.size = 3, .stride = 1, .symmetric_padding = 1});
  x = g.batch_norm("n", g.average_pool(x, {.size = 2, .stride = 1, .padding = Padding::same}),
                   {.gamma_value = 0.5, .epsilon = 0.01f, .momentum = 0.2f, .unbiased = false});
  const compute::TensorId both = g.beside({g.sum(pooled, x), g.lrn(x, {2, 2, 0.5f, 0.25f})});
  x = g.batch_norm("m", g.shortcut(g.dropout(both, 0.75f), 2, 20), {.gamma = false});
  g.loss(g.matrix_product("side", g.global_pool(x), 5, {Initialiser::Kind::normal, 0.5},
                          std::nullopt, false),
         {.weight = 0.25f, .auxiliary = true});
  g.loss(
      g.matrix_product("fc", g.relu(x), 5, {Initialiser::Kind::truncated_normal, 0.125}, 2, true));
  const Graph expected = std::move(g).finish();

  const Model model = read_model(R"(
model all classes=5   # of operations
input size=9x7 mean=0.25,0.5,1 deviation=1,2,3 clip=yes
c = convolution channels=6 kernel=1x3 stride=2 groups=3 padding=valid init=uniform:1/4 bias=-0.5 decay=no
pooled = max_pool size=3 stride=1 padding=1
average_pool c size=2 stride=1 padding=same
n = batch_norm gamma=0.5 epsilon=0.01 momentum=0.2 variance=biased
added = sum pooled n
normal = lrn n radius=2 bias=2 alpha=0.5 beta=0.25
concat added normal
dropout keep=0.75
shortcut stride=2 channels=20
m = batch_norm gamma=none
global_pool
side = matrix_product outputs=$classes init=normal:0.5 bias=none decay=no
loss weight=0.25 auxiliary=yes
relu m
fc = matrix_product outputs=5 init=truncated_normal:0.125 bias=2
loss
)");

  CHECK(model.graph.structure_hash() == expected.structure_hash());
  check_first_values(model.graph, expected);
  CHECK_FALSE(image_of(model.graph).jitter);
  CHECK(image_of(model.graph).clip);
}

TEST_CASE("model file: what is left out is what the documentation says") {
  const Model model = read_model(
      "model m classes=4\r\ninput size=8\r\na = convolution channels=2 kernel=3\r\n"
      "max_pool size=2\r\nb = batch_norm\r\nc = matrix_product outputs=4\r\nloss");

  const Graph& graph = model.graph;
  CHECK(image_of(graph).mean == std::vector<float>(3, 0.5f));
  CHECK(image_of(graph).deviation == std::vector<float>(3, 0.25f));
  CHECK_FALSE(image_of(graph).clip);
  CHECK(graph.tensors[1] == compute::Shape{1, 8, 8, 2});
  CHECK(graph.tensors[2] == compute::Shape{1, 4, 4, 2});
  CHECK(model.recipe == Recipe{});
  CHECK(same(graph.parameters[0].initial, {Initialiser::Kind::normal, std::sqrt(2.0 / 18)}));
  CHECK(graph.parameters[0].decay);
  CHECK(graph.parameters[1].name == "b.weight");
  CHECK(same(graph.parameters[3].initial, {Initialiser::Kind::uniform, 1 / std::sqrt(32.0)}));
  CHECK(graph.parameters[4].name == "c.bias");
}

TEST_CASE("model file: blocks nest, have defaults, and ranges of names repeat a line") {
  const Model model = read_model(R"(
model m classes=3
block inner width=4 twice=1
  conv = convolution channels=$width kernel=$twice
  relu
end
block outer w
  b{1..2}.x = inner width=$w twice=3
  c = inner
end
input size=6
a{3..4} = outer w=5
last = matrix_product outputs=$classes
loss
)");

  std::vector<std::string> names;
  for (const Parameter& p : model.graph.parameters) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{"a3.b1.x.conv.weight", "a3.b2.x.conv.weight",
                                          "a3.c.conv.weight", "a4.b1.x.conv.weight",
                                          "a4.b2.x.conv.weight", "a4.c.conv.weight", "last.weight",
                                          "last.bias"});
  CHECK(model.graph.parameters[1].dims == std::vector<std::size_t>{5, 3, 3, 5});
  CHECK(model.graph.parameters[2].dims == std::vector<std::size_t>{4, 1, 1, 5});
}

TEST_CASE("model file: filters have the numbers of their names") {
  const Graph graph = read_model(R"(
model m classes=2
input size=9x7 channels=1
blur_pool size=3
blur_pool size=5 stride=1
average_pool size=2 stride=1 padding=1 count-padding=yes
fc = matrix_product outputs=2
loss
)")
                          .graph;
  std::vector<Filter> filters;
  std::vector<compute::Shape> shapes;
  for (const Node& node : graph.nodes)
    if (const auto* filter = std::get_if<Filter>(&node.operation)) {
      filters.push_back(*filter);
      shapes.push_back(graph.tensors[node.output]);
    }

  REQUIRE(filters.size() == 3);
  for (int i = 0; i < 9; ++i) CHECK(filters[0].taps[i] == (i == 4 ? 4 : i % 2 ? 2 : 1) / 16.f);
  CHECK(shapes[0] == compute::Shape{1, 5, 4, 1});
  CHECK(filters[1].taps[0] == 1 / 256.f);
  CHECK(filters[1].taps[12] == 36 / 256.f);
  CHECK(shapes[1] == shapes[0]);
  CHECK(filters[2].taps == std::vector<float>(4, 0.25f));
  CHECK(shapes[2] == compute::Shape{1, 6, 5, 1});
}

TEST_CASE("model file: the documentation names every operation and option, and its examples work") {
  const std::string page = text_of(RINGTRAIN_MODELS "/../docs/reference/model-file.md");
  std::vector<std::string> words = operation_words();
  for (const std::string& word : operation_words())
    for (const std::string& option : split(find_operation(word)->options, ' '))
      if (!option.empty()) words.push_back(option);
  for (const std::string_view options : {recipe_options, image_options, input_options})
    for (const std::string& option : split(options, ' ')) words.push_back(option);

  for (const std::string& word : words) {
    CAPTURE(word);
    CHECK(page.find("`" + word + "`") != page.npos);
  }
  int examples = 0;
  for (std::size_t at = page.find("```\nmodel "); at != page.npos;
       at = page.find("```\nmodel ", at + 1), ++examples)
    CHECK_NOTHROW(read_model(page.substr(at + 4, page.find("```", at + 4) - at - 4)));
  CHECK(examples == 2);
}
